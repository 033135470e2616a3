// The Open Inference Protocol over gRPC: inference.GRPCInferenceService. server/serving carries
// out requests; this reads them, writes the answers, and reports errors in the form of the
// protocol.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "inference/grpc_service.pb.h"
#include "server/service/router.h"
#include "server/serving/model_server.h"

namespace telegrad {

class InferenceService {
 public:
  // `models`: null where none are served.
  explicit InferenceService(ModelServer* models) : models_(models) {}

  absl::Status ServerLive(const Caller& caller, const inference::ServerLiveRequest& request,
                          inference::ServerLiveResponse* response);
  absl::Status ServerReady(const Caller& caller, const inference::ServerReadyRequest& request,
                           inference::ServerReadyResponse* response);
  absl::Status ModelReady(const Caller& caller, const inference::ModelReadyRequest& request,
                          inference::ModelReadyResponse* response);
  absl::Status ServerMetadata(const Caller& caller, const inference::ServerMetadataRequest& request,
                              inference::ServerMetadataResponse* response);
  absl::Status ModelMetadata(const Caller& caller, const inference::ModelMetadataRequest& request,
                             inference::ModelMetadataResponse* response);
  absl::Status ModelConfig(const Caller& caller, const inference::ModelConfigRequest& request,
                           inference::ModelConfigResponse* response);
  absl::Status ModelStatistics(const Caller& caller,
                               const inference::ModelStatisticsRequest& request,
                               inference::ModelStatisticsResponse* response);
  absl::Status RepositoryIndex(const Caller& caller,
                               const inference::RepositoryIndexRequest& request,
                               inference::RepositoryIndexResponse* response);
  absl::Status SystemSharedMemoryStatus(const Caller& caller,
                                        const inference::SystemSharedMemoryStatusRequest& request,
                                        inference::SystemSharedMemoryStatusResponse* response);
  absl::Status SystemSharedMemoryRegister(
      const Caller& caller, const inference::SystemSharedMemoryRegisterRequest& request,
      inference::SystemSharedMemoryRegisterResponse* response);
  absl::Status SystemSharedMemoryUnregister(
      const Caller& caller, const inference::SystemSharedMemoryUnregisterRequest& request,
      inference::SystemSharedMemoryUnregisterResponse* response);
  absl::Status CudaSharedMemoryStatus(const Caller& caller,
                                      const inference::CudaSharedMemoryStatusRequest& request,
                                      inference::CudaSharedMemoryStatusResponse* response);
  absl::Status CudaSharedMemoryRegister(const Caller& caller,
                                        const inference::CudaSharedMemoryRegisterRequest& request,
                                        inference::CudaSharedMemoryRegisterResponse* response);
  absl::Status CudaSharedMemoryUnregister(
      const Caller& caller, const inference::CudaSharedMemoryUnregisterRequest& request,
      inference::CudaSharedMemoryUnregisterResponse* response);
  absl::Status TraceSetting(const Caller& caller, const inference::TraceSettingRequest& request,
                            inference::TraceSettingResponse* response);
  absl::Status LogSettings(const Caller& caller, const inference::LogSettingsRequest& request,
                           inference::LogSettingsResponse* response);
  RawStream* RepositoryModelLoad(grpc::ServerContextBase* context, Caller caller);
  RawStream* RepositoryModelUnload(grpc::ServerContextBase* context, Caller caller);
  RawStream* ModelInfer(grpc::ServerContextBase* context, Caller caller);
  RawStream* ModelStreamInfer(grpc::ServerContextBase* context, Caller caller);

 private:
  absl::StatusOr<ModelServer*> Models() const;

  ModelServer* const models_;
};

// The trace that a call belongs to, by its header traceparent.
std::optional<TraceContext> CallerTrace(const grpc::ServerContextBase& context);
// When a call's deadline is, as the steady clock has it; INT64_MAX: it has none.
int64_t DeadlineNs(const grpc::ServerContextBase& context);

}  // namespace telegrad
