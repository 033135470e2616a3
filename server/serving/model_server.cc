// Checks grants, resolves names in namespaces, loads and unloads, and collects metrics and
// traces of requests.
#include "server/serving/model_server.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr uint64_t kNsOfUs = 1000;
constexpr std::string_view kReasons[kNumFailureReasons] = {"REJECTED", "CANCELED", "BACKEND",
                                                           "OTHER"};

// A metric of each version of each model.
constexpr struct {
  std::string_view name;
  MetricInfo::Kind kind;
  std::string_view help;
  double (*value)(const StatisticsSnapshot&);
} kRows[] = {
    {"nv_inference_request_success", MetricInfo::kCounter, "Inference requests that succeeded",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.success.count); }},
    {"nv_inference_count", MetricInfo::kCounter,
     "Inferences done: a batch of n counts as n, without cached ones",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.inferences); }},
    {"nv_inference_exec_count", MetricInfo::kCounter, "Runs of the model, of whatever batch",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.executions); }},
    {"nv_inference_request_duration_us", MetricInfo::kCounter,
     "Time of requests from their arrival to their answer",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.success.ns / kNsOfUs); }},
    {"nv_inference_queue_duration_us", MetricInfo::kCounter, "Time that requests waited in queues",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.queue.ns / kNsOfUs); }},
    {"nv_inference_compute_input_duration_us", MetricInfo::kCounter,
     "Time in which inputs were put in place",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.input.ns / kNsOfUs); }},
    {"nv_inference_compute_infer_duration_us", MetricInfo::kCounter,
     "Time of runs, the wait for the device included",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.infer.ns / kNsOfUs); }},
    {"nv_inference_compute_output_duration_us", MetricInfo::kCounter,
     "Time in which outputs were taken",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.output.ns / kNsOfUs); }},
    {"nv_cache_num_hits_per_model", MetricInfo::kCounter, "Answers from the response cache",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.hit.count); }},
    {"nv_cache_hit_duration_per_model", MetricInfo::kCounter,
     "Time of answers from the response cache, in microseconds",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.hit.ns / kNsOfUs); }},
    {"nv_cache_num_misses_per_model", MetricInfo::kCounter,
     "Requests that the response cache had no answer for",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.miss.count); }},
    {"nv_cache_miss_duration_per_model", MetricInfo::kCounter,
     "Time of looking in vain for answers, in microseconds",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.miss.ns / kNsOfUs); }},
    {"nv_inference_pending_request_count", MetricInfo::kGauge,
     "Requests taken and not answered yet",
     [](const StatisticsSnapshot& s) { return static_cast<double>(s.pending); }},
};

}  // namespace

ModelServer::ModelServer(ServingOptions options, const Environment* env,
                         std::shared_ptr<Tenant> owner)
    : options_(std::move(options)),
      owner_(std::move(owner)),
      regions_(options_.shared_memory),
      device_regions_(options_.cuda_shared_memory, env->devices),
      responses_(options_.response_cache),
      maker_{
          .env = env,
          .device = nullptr,
          .owner = owner_.get(),
          .weights = nullptr,
          .responses = options_.response_cache > 0 ? &responses_ : nullptr,
          .read = options_.read,
          .make_room = options_.evict
                           ? [this](const std::string& name) { return repository_->EvictOne(name); }
                           : FormMaker::MakeRoom()},
      devices_(maker_, options_.devices),
      repository_(std::make_unique<ModelRepository>(
          RepositoryOptions{
              .roots = options_.roots, .parse = options_.parse, .parse_json = options_.parse_json},
          &maker_, &devices_, &alarm_)) {}

ModelServer::~ModelServer() = default;

absl::StatusOr<std::unique_ptr<ModelServer>> ModelServer::Start(ServingOptions options,
                                                                const Environment* env,
                                                                std::shared_ptr<Tenant> owner) {
  std::unique_ptr<ModelServer> server(new ModelServer(std::move(options), env, std::move(owner)));
  TG_RETURN_IF_ERROR(server->devices_.CheckDefaults());
  TG_RETURN_IF_ERROR(server->repository_->CheckRoots());
  if (server->options_.control != ServingOptions::Control::kExplicit) {
    server->repository_->LoadAll();
  }
  if (server->options_.control == ServingOptions::Control::kPoll) {
    server->poller_.emplace(server->options_.poll,
                            [repository = server->repository_.get()] { repository->Follow(); });
  }
  return server;
}

absl::Status ModelServer::MayUse(const Tenant& tenant, std::string_view model) {
  if (tenant.MayInfer(model)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat("tenant ", tenant.name, " may not use model '", Clip(model, 256),
             "'; grant it with models = NAME below [", tenant.name, "] in the file of --tenants"));
}

absl::StatusOr<std::shared_ptr<ServedModel>> ModelServer::Find(const Tenant& tenant,
                                                               std::string_view model,
                                                               std::string_view version) const {
  TG_ASSIGN_OR_RETURN(const std::string name, FullNameFor(tenant, model));
  TG_RETURN_IF_ERROR(MayUse(tenant, name));
  return repository_->Find(name, version);
}

absl::StatusOr<std::string> ModelServer::FullNameFor(const Tenant& tenant,
                                                     std::string_view name) const {
  const std::vector<std::string>& spaces = repository_->spaces();
  std::string found(name);
  if (spaces.empty() || (tenant.MayInfer(name) && repository_->Knows(name))) return found;
  int several = 0;
  std::string all;
  for (const std::string& space : spaces) {
    std::string full = FullName(space, name);
    if (!tenant.MayInfer(full) || !repository_->Knows(full)) continue;
    StrAppend(&all, several++ == 0 ? "" : ", ", full);
    found = std::move(full);
  }
  if (several <= 1) return found;
  return InvalidArgument("tenant ", tenant.name, " may use several models '", Clip(name, 256),
                         "'; name one of ", all);
}

absl::Status ModelServer::CheckReady(const Tenant& tenant, std::string_view model,
                                     std::string_view version) const {
  TG_ASSIGN_OR_RETURN(const auto served, Find(tenant, model, version));
  return draining_ ? absl::UnavailableError("the server is shutting down") : served->CheckDevices();
}

std::vector<std::string_view> ModelServer::Extensions() const {
  std::vector<std::string_view> out = {"classification",
                                       "model_repository",
                                       "model_repository(unload_dependents)",
                                       "schedule_policy",
                                       "model_configuration",
                                       "binary_tensor_data",
                                       "parameters",
                                       "statistics",
                                       "trace",
                                       "logging",
                                       "sequence"};
  if (regions_.enabled()) out.emplace_back("system_shared_memory");
  if (device_regions_.enabled()) out.emplace_back("cuda_shared_memory");
  return out;
}

absl::StatusOr<TraceValues> ModelServer::Traces(const std::string& model,
                                                const TraceValues& values) {
  if (!model.empty()) {
    const auto known = repository_->Index();
    if (std::ranges::find(known, model, &IndexRow::name) == known.end()) {
      return NotFound("Request for unknown model: '", Clip(model, 256), "' is not found");
    }
  }
  TG_RETURN_IF_ERROR(traces_.Set(model, values));
  return traces_.Get(model);
}

// Its own span has those of its phases as children, see Batcher.
InferDone ModelServer::Traced(const Tenant& tenant, InferRequest* request, InferDone done) {
  Tracer* const tracer = maker_.env->tracer;
  if (tracer == nullptr) return done;
  std::optional<TraceContext> context = tracer->Begin(request->caller_trace);
  if (!context && !request->caller_trace && traces_.Takes(request->model)) {
    context = TraceContext{.high = tracer->NewId(), .low = tracer->NewId(), .sampled = true};
  }
  if (!context) return done;
  request->trace = std::make_shared<OperationTrace>(
      tracer, *context, StrCat("infer ", request->model), tenant.name, 0, 0);
  return [trace = request->trace, done = std::move(done)](absl::StatusOr<InferResult> result) {
    trace->Note(result.status());
    trace->End();
    done(std::move(result));
  };
}

// Within the tenant's rates of requests and of bytes. The bytes of the answer are known when it is
// there.
absl::Status ModelServer::Admit(Tenant& tenant, const InferRequest& request) const {
  const int64_t now_ns = clock().Ns();
  TG_RETURN_IF_ERROR(tenant.TakeRequest(now_ns));
  uint64_t bytes = 0;
  for (const InferInput& input : request.inputs) bytes += static_cast<uint64_t>(input.bytes);
  return tenant.TakeTransfer(bytes, now_ns);
}

void ModelServer::Infer(const std::shared_ptr<Tenant>& tenant, InferRequest request,
                        InferDone done) {
  if (draining_) return done(absl::UnavailableError("the server is shutting down"));
  if (const absl::Status admitted = Admit(*tenant, request); !admitted.ok()) return done(admitted);
  done = [tenant, done = std::move(done)](absl::StatusOr<InferResult> result) {
    int64_t bytes = 0;
    if (result.ok()) {
      for (const InferOutput& output : result->outputs) bytes += output.bytes;
    }
    tenant->transfers->Correct(0, bytes);
    done(std::move(result));
  };
  auto name = FullNameFor(*tenant, request.model);
  if (!name.ok()) return done(name.status());
  request.model = *std::move(name);
  if (!options_.evict || !MayUse(*tenant, request.model).ok() ||
      !repository_->IsEvicted(request.model)) {
    return InferNow(tenant, std::move(request), std::move(done));
  }
  struct Kept {
    InferRequest request;
    InferDone done;
  };
  const std::string model = request.model;
  auto kept = std::make_shared<Kept>(Kept{std::move(request), std::move(done)});
  // Whether it could be loaded, and why not, is found like that of any model.
  repository_->Wake(model, [this, tenant, kept](const absl::Status&) {
    InferNow(tenant, std::move(kept->request), std::move(kept->done));
  });
}

void ModelServer::InferNow(const std::shared_ptr<Tenant>& tenant, InferRequest request,
                           InferDone done) {
  const auto model = Find(*tenant, request.model, request.version);
  if (!model.ok()) return done(model.status());
  done = Traced(*tenant, &request, std::move(done));
  if (const absl::Status taken = TakeRegions(*tenant, &request); !taken.ok()) return done(taken);
  if (std::ranges::any_of(request.outputs, [](const auto& o) { return o.region.has_value(); })) {
    done = [this, tenant, wanted = request.outputs,
            done = std::move(done)](absl::StatusOr<InferResult> result) {
      if (!result.ok()) return done(std::move(result));
      GiveRegions(tenant, wanted, *std::move(result), done);
    };
  }
  FetchInputs(tenant, *model, std::move(request), std::move(done));
}

std::vector<LabelledMetric> ModelServer::Metrics() const {
  std::vector<LabelledMetric> out;
  for (const auto& row : kRows) {
    out.push_back({.name = std::string(row.name), .kind = row.kind, .help = std::string(row.help)});
  }
  LabelledMetric failures{.name = "nv_inference_request_failure",
                          .kind = MetricInfo::kCounter,
                          .help = "Inference requests that failed, by reason"};
  for (const auto& model : repository_->All()) {
    const StatisticsSnapshot snapshot = model->statistics().Snapshot();
    const std::vector<std::pair<std::string, std::string>> labels = {
        {"model", model->config().name}, {"version", model->version()}};
    for (size_t i = 0; i < std::size(kRows); ++i) {
      out[i].samples.push_back({.labels = labels, .value = kRows[i].value(snapshot)});
    }
    for (int reason = 0; reason < kNumFailureReasons; ++reason) {
      auto with_reason = labels;
      with_reason.emplace_back("reason", std::string(kReasons[reason]));
      failures.samples.push_back({.labels = std::move(with_reason),
                                  .value = static_cast<double>(snapshot.failures[reason])});
    }
  }
  out.push_back(std::move(failures));
  return out;
}

}  // namespace telegrad
