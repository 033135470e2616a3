// A stranger learns nothing: the answer to a call without valid credentials is the same whether or
// not there is such a method, and says nothing of what was wrong with them. The log does.
#include "server/service/router.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/status.h"
#include "grpc/grpc_security_constants.h"
#include "proto/transport.h"
#include "server/service/admin_service.h"
#include "server/service/compute_service.h"
#include "server/service/connections.h"
#include "server/service/convert.h"
#include "server/service/data_service.h"
#include "server/service/health_service.h"
#include "server/service/inference_service.h"
#include "server/service/reflection_service.h"
#include "server/service/session_service.h"
#include "server/service/unary_call.h"

namespace telegrad {
namespace {

constexpr Method kMethods[] = {
#define METHOD(path, access, listeners, handler) {path, Access::access, listeners, handler},
#include "server/service/methods.def"
#undef METHOD
};

// Ends a call before anything of it is read.
class Refusal final : public RawStream {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }
  void End(absl::Status) override {}  // it does already
  void OnOver() override { delete this; }
};

// The tenant for whom the caller says that it acts; empty: it does not say.
absl::StatusOr<std::string> ActsFor(const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kActsForHeader);
  if (begin == end) return std::string();
  if (std::next(begin) != end) {
    return InvalidArgument("more than one header ", kActsForHeader);
  }
  return std::string(begin->second.data(), begin->second.size());
}

Credentials CallerCredentials(const grpc::ServerContextBase& context, const std::string& peer) {
  Credentials credentials{
      .peer = peer, .authorizations = {}, .certified = false, .names = {}, .certificate = {}};
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  for (auto it = begin; it != end; ++it) {
    credentials.authorizations.emplace_back(it->second.data(), it->second.size());
  }
  const auto transport = context.auth_context();
  if (transport == nullptr || !transport->IsPeerAuthenticated()) return credentials;
  credentials.certified = true;
  for (const grpc::string_ref& pem :
       transport->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
    credentials.certificate.assign(pem.data(), pem.size());
  }
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"uri", GRPC_PEER_URI_PROPERTY_NAME},
      {"dns", GRPC_PEER_DNS_PROPERTY_NAME},
      {"email", GRPC_PEER_EMAIL_PROPERTY_NAME}};
  for (const auto& [kind, property] : kKinds) {
    for (const grpc::string_ref& value : transport->FindPropertyValues(property)) {
      credentials.names.push_back({kind, std::string(value.data(), value.size())});
    }
  }
  return credentials;
}

}  // namespace

Router::Router(Listener listener, const Services& services, Authenticator* authenticator,
               FindTenant find_tenant, ResetGuard* guard, Connections* connections,
               CallWatch* watch, const Clock* clock)
    : listener_(listener),
      services_(services),
      authenticator_(authenticator),
      find_tenant_(std::move(find_tenant)),
      guard_(guard),
      connections_(connections),
      watch_(watch),
      clock_(clock),
      unauthenticated_(LogLevel::kWarning, "unauthenticated", clock),
      denied_(LogLevel::kWarning, "permission_denied", clock) {
  for (const Method& method : kMethods) methods_[method.path] = &method;
  for (size_t i = 0; i <= std::size(kMethods); ++i) times_.push_back(std::make_unique<Histogram>());
}

std::vector<LabelledMetric::Sample> Router::CallTimes() const {
  constexpr std::pair<Listener, const char*> kNames[] = {
      {kOnCompute, "compute"}, {kOnData, "data"}, {kOnAdmin, "admin"}};
  const auto* const listener =
      std::ranges::find(kNames, listener_, [](const auto& row) -> unsigned { return row.first; });
  std::vector<LabelledMetric::Sample> out;
  for (size_t i = 0; i <= std::size(kMethods); ++i) {
    const bool none = i == std::size(kMethods);
    const Histogram::Counts counts = times_[i]->Read();
    if (counts.total() == 0) continue;
    out.push_back({.labels = {{"method", none ? "none" : std::string(kMethods[i].path)},
                              {"listener", listener->second}},
                   .histogram = counts});
  }
  return out;
}

RawStream* Router::Open(grpc::GenericServerContext* context) {
  std::shared_ptr<const CallWatch::Known> known;
  Reservation open;
  std::string peer = context->peer();
  const absl::StatusOr<RawStream*> started = Start(*context, peer, &known, &open);
  RawStream* const stream = started.ok() ? *started : new Refusal(started.status());
  const auto method = started.ok() ? methods_.find(context->method()) : methods_.end();
  const size_t row = method == methods_.end() ? std::size(kMethods)
                                              : static_cast<size_t>(method->second - kMethods);
  stream->Time(times_[row].get());
  stream->CountResets(guard_, std::move(peer));
  stream->Hold(std::move(open));
  stream->EnterWatch(watch_, std::move(known));
  return stream;
}

absl::StatusOr<RawStream*> Router::Start(grpc::GenericServerContext& context,
                                         const std::string& peer,
                                         std::shared_ptr<const CallWatch::Known>* known,
                                         Reservation* stream) {
  const auto it = methods_.find(context.method());
  const Method* method =
      it != methods_.end() && (it->second->listeners & listener_) != 0 ? it->second : nullptr;
  Caller caller{.principal = {}, .tenant = nullptr, .peer = peer};
  if (method != nullptr && method->access == Access::kAnyone) {
    return method->handler.start(services_, &context, std::move(caller));
  }
  Grant grant;
  absl::StatusOr<Principal> principal =
      authenticator_->Authenticate(CallerCredentials(context, caller.peer), &grant);
  if (!principal.ok()) {
    unauthenticated_.Write({{"peer", caller.peer},
                            {"method", context.method()},
                            {"reason", principal.status().message()}});
    return absl::UnauthenticatedError("the credentials of this call are missing or not valid");
  }
  connections_->Know(caller.peer, principal->tenant);
  caller.principal = *std::move(principal);
  if (method == nullptr) {
    return absl::UnimplementedError(StrCat("unknown method ", context.method(), " here"));
  }
  if (method->access == Access::kAdmin && !caller.principal.admin) {
    denied_.Write({{"peer", caller.peer},
                   {"method", context.method()},
                   {"subject", caller.principal.subject}});
    return absl::PermissionDeniedError("this caller may not call this method");
  }
  const auto asked =
      std::make_shared<CallWatch::Known>(CallWatch::Known{caller.principal, std::move(grant)});
  caller.known = *known = asked;
  TG_ASSIGN_OR_RETURN(const std::string acts_for, ActsFor(context));
  // Where nobody is asked who they are, all are one tenant.
  if (acts_for.empty() || authenticator_->open()) {
    TG_ASSIGN_OR_RETURN(caller.tenant, find_tenant_(caller.principal.tenant, ""));
  } else {
    TG_ASSIGN_OR_RETURN(caller.tenant, find_tenant_(acts_for, caller.principal.tenant));
    asked->acts_for = acts_for;
    caller.principal = {.subject = StrCat(caller.principal.subject, " for ", acts_for),
                        .tenant = acts_for};
  }
  if (method->handler.counts == Counts::kStream) {
    TG_ASSIGN_OR_RETURN(*stream,
                        Reservation::Take(caller.tenant->accounts.shared(Quota::kStreams), 1));
  } else if (method->handler.counts == Counts::kRequest && !caller.principal.admin) {
    TG_RETURN_IF_ERROR(caller.tenant->TakeRequest(clock_->Ns()));
  }
  return method->handler.start(services_, &context, std::move(caller));
}

}  // namespace telegrad
