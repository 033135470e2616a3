// Parses requests, finds the model for the caller, and writes metadata, configuration,
// statistics and results.
#include "server/service/inference_service.h"

#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "proto/transport.h"
#include "server/service/async_call.h"
#include "server/service/infer_messages.h"
#include "server/service/infer_stream.h"
#include "server/service/model_config_text.h"
#include "server/service/unary_call.h"
#include "server/serving/datatype.h"

namespace telegrad {
namespace {

void Write(const DurationSum& sum, inference::StatisticDuration* out) {
  out->set_count(sum.count);
  out->set_ns(sum.ns);
}

void Write(ServedModel& model, inference::ModelStatistics* out) {
  const StatisticsSnapshot s = model.statistics().Snapshot();
  out->set_name(model.config().name);
  out->set_version(model.version());
  out->set_last_inference(s.last_ms);
  out->set_inference_count(s.inferences);
  out->set_execution_count(s.executions);
  auto* stats = out->mutable_inference_stats();
  Write(s.success, stats->mutable_success());
  Write(s.fail, stats->mutable_fail());
  Write(s.queue, stats->mutable_queue());
  Write(s.input, stats->mutable_compute_input());
  Write(s.infer, stats->mutable_compute_infer());
  Write(s.output, stats->mutable_compute_output());
  Write(s.hit, stats->mutable_cache_hit());
  Write(s.miss, stats->mutable_cache_miss());
  for (const auto& [size, sums] : s.batches) {
    auto* batch = out->add_batch_stats();
    batch->set_batch_size(static_cast<uint64_t>(size));
    Write(sums.input, batch->mutable_compute_input());
    Write(sums.infer, batch->mutable_compute_infer());
    Write(sums.output, batch->mutable_compute_output());
  }
  for (const auto& [device, bytes] : model.WeightBytesByDevice()) {
    auto* memory = out->add_memory_usage();
    memory->set_type(device);
    memory->set_byte_size(static_cast<uint64_t>(bytes));
  }
}

void Write(const TensorSpec& spec, inference::ModelMetadataResponse::TensorMetadata* out) {
  out->set_name(spec.name);
  out->set_datatype(std::string(DatatypeOf(spec)));
  out->mutable_shape()->Add(spec.shape.begin(), spec.shape.end());
}

}  // namespace

int64_t DeadlineNs(const grpc::ServerContextBase& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const int64_t now = Clock::Steady()->Ns();
  constexpr int64_t kFar = INT64_MAX / 4;  // longer than any process lives
  return ns > kFar ? INT64_MAX : now + ns;
}

std::optional<TraceContext> CallerTrace(const grpc::ServerContextBase& context) {
  const auto header = context.client_metadata().find("traceparent");
  if (header == context.client_metadata().end()) return std::nullopt;
  return ParseTraceparent({header->second.data(), header->second.size()});
}

absl::StatusOr<ModelServer*> InferenceService::Models() const {
  if (models_ != nullptr) return models_;
  return FailedPrecondition("this server serves no models; start it with --models DIR");
}

absl::Status InferenceService::ServerLive(const Caller&, const inference::ServerLiveRequest&,
                                          inference::ServerLiveResponse* response) {
  response->set_live(true);
  return absl::OkStatus();
}

absl::Status InferenceService::ServerReady(const Caller&, const inference::ServerReadyRequest&,
                                           inference::ServerReadyResponse* response) {
  TG_ASSIGN_OR_RETURN(const ModelServer* models, Models());
  response->set_ready(models->Ready());
  return absl::OkStatus();
}

absl::Status InferenceService::ModelReady(const Caller& caller,
                                          const inference::ModelReadyRequest& request,
                                          inference::ModelReadyResponse* response) {
  TG_ASSIGN_OR_RETURN(const ModelServer* models, Models());
  const absl::Status ready = models->CheckReady(*caller.tenant, request.name(), request.version());
  if (!ready.ok() && !absl::IsUnavailable(ready) && !absl::IsNotFound(ready)) return ready;
  response->set_ready(ready.ok());
  return absl::OkStatus();
}

absl::Status InferenceService::ServerMetadata(const Caller&,
                                              const inference::ServerMetadataRequest&,
                                              inference::ServerMetadataResponse* response) {
  response->set_name("telegrad");
  response->set_version(std::string(Version()));
  if (models_ == nullptr) return absl::OkStatus();
  for (const std::string_view extension : models_->Extensions()) {
    response->add_extensions(std::string(extension));
  }
  return absl::OkStatus();
}

absl::Status InferenceService::ModelMetadata(const Caller& caller,
                                             const inference::ModelMetadataRequest& request,
                                             inference::ModelMetadataResponse* response) {
  TG_ASSIGN_OR_RETURN(const ModelServer* models, Models());
  TG_ASSIGN_OR_RETURN(const auto model,
                      models->Find(*caller.tenant, request.name(), request.version()));
  response->set_name(model->config().name);
  response->set_platform(std::string(model->config().format_info().platform));
  for (const std::string& version : models->repository().Versions(model->config().name)) {
    response->add_versions(version);
  }
  for (const TensorSpec& spec : model->config().inputs) Write(spec, response->add_inputs());
  for (const TensorSpec& spec : model->config().outputs) Write(spec, response->add_outputs());
  return absl::OkStatus();
}

absl::Status InferenceService::ModelConfig(const Caller& caller,
                                           const inference::ModelConfigRequest& request,
                                           inference::ModelConfigResponse* response) {
  TG_ASSIGN_OR_RETURN(const ModelServer* models, Models());
  TG_ASSIGN_OR_RETURN(const auto model,
                      models->Find(*caller.tenant, request.name(), request.version()));
  ToProto(model->config(), response->mutable_config());
  return absl::OkStatus();
}

absl::Status InferenceService::ModelStatistics(const Caller& caller,
                                               const inference::ModelStatisticsRequest& request,
                                               inference::ModelStatisticsResponse* response) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  if (!request.name().empty() && !request.version().empty()) {
    TG_ASSIGN_OR_RETURN(const auto model,
                        models->Find(*caller.tenant, request.name(), request.version()));
    Write(*model, response->add_model_stats());
    return absl::OkStatus();
  }
  std::string asked;
  if (!request.name().empty()) {
    TG_ASSIGN_OR_RETURN(const auto model, models->Find(*caller.tenant, request.name(), ""));
    asked = model->config().name;
  }
  for (const auto& model : models->repository().All()) {
    const std::string& name = model->config().name;
    if (!asked.empty() && name != asked) continue;
    if (ModelServer::MayUse(*caller.tenant, name).ok()) Write(*model, response->add_model_stats());
  }
  return absl::OkStatus();
}

absl::Status InferenceService::RepositoryIndex(const Caller& caller,
                                               const inference::RepositoryIndexRequest& request,
                                               inference::RepositoryIndexResponse* response) {
  TG_ASSIGN_OR_RETURN(const ModelServer* models, Models());
  if (!request.repository_name().empty()) {
    return Unimplemented("repositories are not chosen by name; leave repository_name empty");
  }
  for (const IndexRow& row : models->repository().Index()) {
    if (request.ready() && row.state != "READY") continue;
    if (!caller.principal.admin && !ModelServer::MayUse(*caller.tenant, row.name).ok()) continue;
    auto* out = response->add_models();
    out->set_name(row.name);
    out->set_version(row.version);
    out->set_state(row.state);
    out->set_reason(row.reason);
  }
  return absl::OkStatus();
}

RawStream* InferenceService::ModelInfer(grpc::ServerContextBase* context, Caller caller) {
  const int64_t deadline_ns = DeadlineNs(*context);
  return new AsyncCall(
      kMaxMessageBytes,
      [this, caller = std::move(caller), deadline_ns, trace = CallerTrace(*context)](
          const grpc::ByteBuffer& bytes, AsyncCall::Reply reply) {
        const auto models = Models();
        if (!models.ok()) return reply(models.status());
        auto received = ToInferRequest(bytes, *caller.tenant);
        if (!received.ok()) return reply(received.status());
        received->request.deadline_ns = deadline_ns;
        received->request.caller_trace = trace;
        received->request.cancellation = reply.cancellation();
        (*models)->Infer(caller.tenant, std::move(received->request),
                         [reply, id = std::move(received->id)](absl::StatusOr<InferResult> result) {
                           if (!result.ok()) return reply(result.status());
                           reply(absl::OkStatus(), ToMessage(*result, id));
                         });
      });
}

RawStream* InferenceService::ModelStreamInfer(grpc::ServerContextBase* context, Caller caller) {
  const auto models = Models();
  return InferStream::Start(models.ok() ? *models : nullptr, models.status(), std::move(caller),
                            *context);
}

}  // namespace telegrad
