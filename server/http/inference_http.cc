#include "server/http/inference_http.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/ascii.h"
#include "engine/base/status.h"
#include "server/http/infer_json.h"
#include "server/http/load_json.h"
#include "server/http/model_json.h"
#include "server/http/page.h"
#include "server/http/regions_json.h"
#include "server/http/routes.h"
#include "server/http/settings_json.h"

namespace telegrad {
namespace {

using What = Route::What;

constexpr int64_t kMostControlBytes = 64 << 10;  // of a request that is no inference
constexpr int64_t kLoadCopies = 3;  // of a load's body: itself, and what ParseLoadJson says
// Of JSON that is read or written at once, in a fraction of a millisecond; more is for the pool.
constexpr size_t kQuickJsonBytes = 32 << 10;
constexpr const char* kJsonLength = "inference-header-content-length";

struct HttpCaller {
  Principal principal;
  std::shared_ptr<Tenant> tenant;  // null where nobody was asked
  std::optional<TraceContext> trace;
};

// "HOST:PORT" without the port, in small letters.
std::string HostOf(std::string_view authority) {
  std::string host = absl::AsciiStrToLower(ToAbsl(authority));
  const size_t colon = host.rfind(':');
  if (colon != std::string::npos && host.find(']', colon) == std::string::npos) host.resize(colon);
  return host;
}

bool IsLocalHost(const std::string& host) {
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") &&
          std::ranges::all_of(host, [](char c) { return c == '.' || (c >= '0' && c <= '9'); }));
}

// The rest of what a request says, checked.
absl::StatusOr<size_t> JsonBytesOf(const HttpHead& head) {
  if (const auto it = head.headers.find("content-encoding");
      it != head.headers.end() && it->second != "identity") {
    return Unimplemented("Content-Encoding ", Clip(it->second, 32),
                         ": compressed requests are not taken");
  }
  const auto it = head.headers.find(kJsonLength);
  if (it == head.headers.end()) return SIZE_MAX;
  size_t bytes = 0;
  const char* const end = it->second.data() + it->second.size();
  const auto [parsed, error] = std::from_chars(it->second.data(), end, bytes);
  if (error == std::errc() && parsed == end && bytes != SIZE_MAX) return bytes;
  return InvalidArgument("Inference-Header-Content-Length '", Clip(it->second, 32),
                         "' is not a number");
}

// Charges the tenant for as long as `kept` is there.
PayBytes PayFrom(const std::shared_ptr<Tenant>& tenant, Reservation* kept) {
  return [tenant, kept](int64_t bytes) -> absl::Status {
    TG_ASSIGN_OR_RETURN(auto paid,
                        Reservation::Take(tenant->accounts.shared(Quota::kHostStaging), bytes));
    kept->Add(std::move(paid));
    return absl::OkStatus();
  };
}

class InferenceExchange final : public HttpExchange {
 public:
  InferenceExchange(ModelServer* models, std::shared_ptr<TaskPool> json, Route route,
                    HttpCaller caller, size_t json_bytes)
      : models_(*models),
        json_(std::move(json)),
        route_(std::move(route)),
        caller_(std::move(caller)),
        json_bytes_(json_bytes) {}

  absl::Status Take(int64_t bytes) override {
    bytes_ += bytes;
    const bool load = route_.what == What::kLoad && caller_.principal.admin;
    if (route_.what != What::kInfer && !load) {
      if (bytes_ <= kMostControlBytes) return absl::OkStatus();
      return ResourceExhausted("a request of ", bytes_, " bytes; this one takes ",
                               kMostControlBytes);
    }
    TG_ASSIGN_OR_RETURN(auto paid,
                        Reservation::Take(caller_.tenant->accounts.shared(Quota::kHostStaging),
                                          load ? kLoadCopies * bytes : bytes));
    paid_.Add(std::move(paid));
    return absl::OkStatus();
  }

  void Gone() override { cancellation_->Cancel(); }

  void Run(std::string body, HttpReply reply) override {
    if (route_.what == What::kInfer) {
      const size_t json_bytes = std::min(json_bytes_, body.size());
      // The reply keeps this exchange.
      return Do(*json_, *caller_.tenant, json_bytes,
                [this, body = std::move(body), reply = std::move(reply)]() mutable {
                  Infer(std::move(body), std::move(reply));
                });
    }
    if (route_.what == What::kRegister) {
      const absl::Status status = RegisterRegion(body);
      return reply(status.ok() ? HttpAnswer{} : ErrorAnswer(status));
    }
    if (route_.what == What::kTraceSettings || route_.what == What::kLogSettings) {
      absl::StatusOr<HttpAnswer> answer = Settings(body);
      return reply(answer.ok() ? *std::move(answer) : ErrorAnswer(answer.status()));
    }
    if (route_.what == What::kLoad || route_.what == What::kUnload) {
      const size_t bytes = caller_.principal.admin ? body.size() : 0;  // else it is not read
      return Do(*json_, *caller_.tenant, bytes,
                [this, body = std::move(body), reply = std::move(reply)]() mutable {
                  Control(body, std::move(reply));
                });
    }
    absl::StatusOr<HttpAnswer> answer = Tell();
    reply(answer.ok() ? *std::move(answer) : ErrorAnswer(answer.status()));
  }

 private:
  // Here and now, or by the pool where `json_bytes` take longer; tenants take turns there.
  static void Do(TaskPool& pool, const Tenant& tenant, size_t json_bytes,
                 absl::AnyInvocable<void()> task);
  static HttpAnswer Written(InferResult result, const JsonAnswer& said,
                            const std::shared_ptr<Tenant>& tenant);
  absl::StatusOr<HttpAnswer> Tell();
  absl::Status RegisterRegion(const std::string& body);
  absl::StatusOr<HttpAnswer> Settings(const std::string& body);
  absl::StatusOr<std::shared_ptr<const GivenModel>> Given(const std::string& body) const;
  void Control(const std::string& body, HttpReply reply);
  void Infer(std::string body, HttpReply reply);

  ModelServer& models_;
  const std::shared_ptr<TaskPool> json_;
  const Route route_;
  const HttpCaller caller_;
  const size_t json_bytes_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  int64_t bytes_ = 0;
  Reservation paid_;  // one, however many pieces the body comes in
};

// Of a path that is there, for other methods (RFC 9110, section 15.5.6).
class WrongMethod final : public HttpExchange {
 public:
  WrongMethod(absl::Status why, std::string_view allowed)
      : why_(std::move(why)), allowed_(allowed) {}

  absl::Status Take(int64_t bytes) override {
    bytes_ += bytes;
    return bytes_ <= kMostControlBytes ? absl::OkStatus() : why_;
  }
  void Run(std::string, HttpReply reply) override {
    HttpAnswer answer = ErrorAnswer(why_);
    answer.status = 405;
    answer.headers.emplace_back("Allow", allowed_);
    reply(std::move(answer));
  }
  void Gone() override {}

 private:
  const absl::Status why_;
  const std::string allowed_;
  int64_t bytes_ = 0;
};

HttpAnswer Json(std::string text) { return {.text = std::move(text)}; }

absl::StatusOr<HttpAnswer> InferenceExchange::Tell() {
  const ModelRepository& repository = models_.repository();
  const auto find = [&] { return models_.Find(*caller_.tenant, route_.model, route_.version); };
  switch (route_.what) {
    case What::kPage:
      return HttpAnswer{.content_type = "text/html; charset=utf-8",
                        .headers = {{"Content-Security-Policy",
                                     "default-src 'none'; script-src 'self'; connect-src 'self'; "
                                     "style-src 'unsafe-inline'; img-src data:; "
                                     "frame-ancestors 'none'"}},
                        .text = std::string(PageHtml())};
    case What::kScript:
      return HttpAnswer{.content_type = "text/javascript; charset=utf-8",
                        .text = std::string(PageScript())};
    case What::kLive:
      return HttpAnswer{};
    case What::kReady:
      return HttpAnswer{.status = models_.Ready() ? 200 : 503};
    case What::kServer:
      return Json(ServerJson(models_.Extensions()));
    case What::kModelReady: {
      TG_RETURN_IF_ERROR(models_.CheckReady(*caller_.tenant, route_.model, route_.version));
      return HttpAnswer{};
    }
    case What::kModel: {
      TG_ASSIGN_OR_RETURN(const auto model, find());
      return Json(MetadataJson(*model, repository.Versions(model->config().name)));
    }
    case What::kConfig: {
      TG_ASSIGN_OR_RETURN(const auto model, find());
      return Json(ConfigJson(model->config()));
    }
    case What::kStatistics: {
      TG_ASSIGN_OR_RETURN(const auto model, find());
      return Json(StrCat("{\"model_stats\":[", StatisticsJson(*model), "]}"));
    }
    case What::kAllStatistics: {
      std::string all;
      for (const auto& model : repository.All()) {
        if (!ModelServer::MayUse(*caller_.tenant, model->config().name).ok()) continue;
        StrAppend(&all, all.empty() ? "" : ",", StatisticsJson(*model));
      }
      return Json(StrCat("{\"model_stats\":[", all, "]}"));
    }
    case What::kIndex: {
      std::vector<IndexRow> rows = repository.Index();
      std::erase_if(rows, [&](const IndexRow& row) {
        return !caller_.principal.admin && !ModelServer::MayUse(*caller_.tenant, row.name).ok();
      });
      return Json(IndexJson(rows));
    }
    case What::kRegions: {
      if (route_.cuda) {
        TG_ASSIGN_OR_RETURN(const auto regions,
                            models_.device_regions().List(caller_.tenant->name, route_.model));
        return Json(RegionsJson(regions));
      }
      TG_ASSIGN_OR_RETURN(const auto regions,
                          models_.regions().List(caller_.tenant->name, route_.model));
      return Json(RegionsJson(regions));
    }
    case What::kUnregister:
      TG_RETURN_IF_ERROR(
          route_.cuda ? models_.device_regions().Unregister(caller_.tenant->name, route_.model)
                      : models_.regions().Unregister(caller_.tenant->name, route_.model));
      return HttpAnswer{};
    case What::kTraceSettings:
    case What::kLogSettings:
    case What::kRegister:
    case What::kLoad:
    case What::kUnload:
    case What::kInfer:
      break;
  }
  return Internal("a request without a handler");
}

absl::Status InferenceExchange::RegisterRegion(const std::string& body) {
  if (route_.cuda) {
    TG_ASSIGN_OR_RETURN(DeviceRegionJson said, ParseDeviceRegion(route_.model, body));
    return models_.RegisterRegion(caller_.tenant->name, std::move(said.region), said.handle);
  }
  TG_ASSIGN_OR_RETURN(SharedRegions::Region region, ParseRegion(route_.model, body));
  return models_.RegisterRegion(caller_.tenant->name, std::move(region));
}

absl::StatusOr<HttpAnswer> InferenceExchange::Settings(const std::string& body) {
  if (!caller_.principal.admin) {
    return absl::PermissionDeniedError("only an administrator may read and change settings");
  }
  const std::string_view said = route_.post ? std::string_view(body) : "";
  if (route_.what == What::kLogSettings) {
    TG_ASSIGN_OR_RETURN(const LogValues values, ParseLogSettings(said));
    TG_RETURN_IF_ERROR(SetLogSettings(values));
    return Json(LogSettingsJson(GetLogSettings()));
  }
  TG_ASSIGN_OR_RETURN(const TraceValues values, ParseTraceSettings(said));
  TG_ASSIGN_OR_RETURN(const TraceValues now, models_.Traces(route_.model, values));
  return Json(TraceSettingsJson(now));
}

// The body, and what is read of it, are paid for as they come (see Take).
absl::StatusOr<std::shared_ptr<const GivenModel>> InferenceExchange::Given(
    const std::string& body) const {
  TG_ASSIGN_OR_RETURN(LoadOverrides overrides, ParseLoadJson(body));
  return GivenModel::Keep(std::move(overrides),
                          caller_.tenant->accounts.shared(Quota::kHostMemory));
}

void InferenceExchange::Control(const std::string& body, HttpReply reply) {
  if (!caller_.principal.admin) {
    return reply(ErrorAnswer(
        absl::PermissionDeniedError("only an administrator may load and unload models")));
  }
  const auto done = [reply](const absl::Status& over) {
    reply(over.ok() ? HttpAnswer{} : ErrorAnswer(over));
  };
  if (route_.what == What::kLoad) {
    auto given = Given(body);
    if (!given.ok()) return done(given.status());
    return models_.repository().Load(route_.model, *std::move(given), done);
  }
  const absl::StatusOr<UnloadJson> unload = ParseUnloadJson(body);
  if (!unload.ok()) return done(unload.status());
  models_.repository().Unload(route_.model, unload->parts, done);
}

void InferenceExchange::Infer(std::string body, HttpReply reply) {
  const auto kept = std::make_shared<const std::string>(std::move(body));
  InferRequest request;
  request.model = route_.model;
  request.version = route_.version;
  const size_t json_bytes = json_bytes_ == SIZE_MAX ? kept->size() : json_bytes_;
  auto said = std::make_shared<JsonAnswer>();
  // For as long as the request refers to the body.
  struct Paid {
    std::shared_ptr<const std::string> body;
    Reservation paid;
  };
  auto owner = std::make_shared<Paid>();
  owner->body = kept;
  owner->paid = std::move(paid_);
  const absl::Status parsed = ParseInferJson(
      *kept, json_bytes, owner, PayFrom(caller_.tenant, &owner->paid), &request, said.get());
  if (!parsed.ok()) return reply(ErrorAnswer(parsed));
  request.cancellation = cancellation_;
  request.caller_trace = caller_.trace;
  models_.Infer(caller_.tenant, std::move(request),
                [reply = std::move(reply), said, tenant = caller_.tenant,
                 pool = json_](absl::StatusOr<InferResult> result) {
                  if (!result.ok()) return reply(ErrorAnswer(result.status()));
                  const size_t bytes = JsonBytesOf(*result, *said);
                  Do(*pool, *tenant, bytes,
                     [reply, said, tenant, result = *std::move(result)]() mutable {
                       reply(Written(std::move(result), *said, tenant));
                     });
                });
}

HttpAnswer InferenceExchange::Written(InferResult result, const JsonAnswer& said,
                                      const std::shared_ptr<Tenant>& tenant) {
  struct Kept {
    InferResult result;
    Reservation paid;
  };
  auto answered = std::make_shared<Kept>();
  answered->result = std::move(result);
  auto written = WriteInferJson(answered->result, said, PayFrom(tenant, &answered->paid));
  if (!written.ok()) return ErrorAnswer(written.status());
  HttpAnswer answer;
  if (!written->parts.empty()) {
    answer.content_type = "application/octet-stream";
    answer.headers.emplace_back("Inference-Header-Content-Length", StrCat(written->json.size()));
  }
  for (const JsonBody::Part& part : written->parts) {
    answer.parts.push_back({part.data, part.bytes});
  }
  answer.text = std::move(written->json);
  answer.owner = std::move(answered);
  return answer;
}

void InferenceExchange::Do(TaskPool& pool, const Tenant& tenant, size_t json_bytes,
                           absl::AnyInvocable<void()> task) {
  if (json_bytes <= kQuickJsonBytes) return task();
  pool.Post([task = std::make_shared<absl::AnyInvocable<void()>>(std::move(task))] { (*task)(); },
            tenant.share);
}

}  // namespace

// Without credentials the machine is the border, and a browser is inside of it: a page from
// elsewhere must not reach the server under a name of its own, nor by a form of another site.
absl::Status InferenceHttp::CheckOrigin(const HttpHead& head) const {
  if (!authenticator_.open()) return absl::OkStatus();
  const auto host = head.headers.find("host");
  const std::string name = host == head.headers.end() ? "" : HostOf(host->second);
  if (local_ && host != head.headers.end() && !IsLocalHost(name)) {
    return absl::PermissionDeniedError(
        "this server is for this machine; ask it as localhost or 127.0.0.1");
  }
  const auto origin = head.headers.find("origin");
  if (origin == head.headers.end()) return absl::OkStatus();
  const size_t scheme = origin->second.find("://");
  if (scheme != std::string::npos && host != head.headers.end() &&
      absl::AsciiStrToLower(origin->second.substr(scheme + 3)) ==
          absl::AsciiStrToLower(host->second)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError("pages of other origins may not use this server");
}

absl::StatusOr<std::unique_ptr<HttpExchange>> InferenceHttp::Begin(const HttpHead& head) {
  TG_RETURN_IF_ERROR(CheckOrigin(head));
  auto route = FindRoute(head.path);
  if (route && route->both) route->post = head.method == "POST";
  HttpCaller caller;
  const bool open_to_anyone = route && (route->what == What::kLive || route->what == What::kReady ||
                                        route->what == What::kPage || route->what == What::kScript);
  if (!open_to_anyone) {
    auto principal = authenticator_.Authenticate({.peer = head.peer,
                                                  .authorizations = head.authorizations,
                                                  .certified = head.certified,
                                                  .names = head.names,
                                                  .certificate = head.certificate});
    if (!principal.ok()) {
      unauthenticated_.Write(
          {{"peer", head.peer}, {"method", head.path}, {"reason", principal.status().message()}});
      return absl::UnauthenticatedError("the credentials of this request are missing or not valid");
    }
    caller.principal = *std::move(principal);
    TG_ASSIGN_OR_RETURN(caller.tenant, find_tenant_(caller.principal.tenant));
  }
  if (const auto it = head.headers.find("traceparent"); it != head.headers.end()) {
    caller.trace = ParseTraceparent(it->second);
  }
  if (!route) return NotFound("there is no ", Clip(head.path, 256), " here");
  // HEAD is GET whose answer's body the library leaves out.
  if (route->post ? head.method != "POST" : head.method != "GET" && head.method != "HEAD") {
    return std::make_unique<WrongMethod>(
        InvalidArgument(Clip(head.path, 256), " takes ", route->post ? "POST" : "GET", ", not ",
                        Clip(head.method, 16)),
        route->both   ? "GET, HEAD, POST"
        : route->post ? "POST"
                      : "GET, HEAD");
  }
  TG_ASSIGN_OR_RETURN(const size_t json_bytes, JsonBytesOf(head));
  if (route->what == What::kInfer) {
    TG_RETURN_IF_ERROR(models_.Find(*caller.tenant, route->model, route->version).status());
  } else if (!open_to_anyone && !caller.principal.admin) {
    TG_RETURN_IF_ERROR(caller.tenant->TakeRequest(models_.clock().Ns()));
  }
  return std::make_unique<InferenceExchange>(&models_, json_, *route, std::move(caller),
                                             json_bytes);
}

}  // namespace telegrad
