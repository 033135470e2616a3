// The calls of the Open Inference Protocol that register shared memory of the host and of GPUs.
#include <utility>

#include "engine/base/status.h"
#include "server/service/inference_service.h"

namespace telegrad {

absl::Status InferenceService::SystemSharedMemoryStatus(
    const Caller& caller, const inference::SystemSharedMemoryStatusRequest& request,
    inference::SystemSharedMemoryStatusResponse* response) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  TG_ASSIGN_OR_RETURN(const auto regions,
                      models->regions().List(caller.tenant->name, request.name()));
  for (const SharedRegions::Region& region : regions) {
    auto& out = (*response->mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_key(region.key);
    out.set_offset(region.offset);
    out.set_byte_size(region.bytes);
  }
  return absl::OkStatus();
}

absl::Status InferenceService::SystemSharedMemoryRegister(
    const Caller& caller, const inference::SystemSharedMemoryRegisterRequest& request,
    inference::SystemSharedMemoryRegisterResponse*) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  return models->RegisterRegion(caller.tenant->name,
                                SharedRegions::Region{.name = request.name(),
                                                      .key = request.key(),
                                                      .offset = request.offset(),
                                                      .bytes = request.byte_size()});
}

absl::Status InferenceService::SystemSharedMemoryUnregister(
    const Caller& caller, const inference::SystemSharedMemoryUnregisterRequest& request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  return models->regions().Unregister(caller.tenant->name, request.name());
}

absl::Status InferenceService::CudaSharedMemoryStatus(
    const Caller& caller, const inference::CudaSharedMemoryStatusRequest& request,
    inference::CudaSharedMemoryStatusResponse* response) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  TG_ASSIGN_OR_RETURN(const auto regions,
                      models->device_regions().List(caller.tenant->name, request.name()));
  for (const DeviceRegions::Region& region : regions) {
    auto& out = (*response->mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_device_id(static_cast<uint64_t>(region.device_id));
    out.set_byte_size(region.bytes);
  }
  return absl::OkStatus();
}

absl::Status InferenceService::CudaSharedMemoryRegister(
    const Caller& caller, const inference::CudaSharedMemoryRegisterRequest& request,
    inference::CudaSharedMemoryRegisterResponse*) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  return models->RegisterRegion(
      caller.tenant->name,
      DeviceRegions::Region{
          .name = request.name(), .device_id = request.device_id(), .bytes = request.byte_size()},
      request.raw_handle());
}

absl::Status InferenceService::CudaSharedMemoryUnregister(
    const Caller& caller, const inference::CudaSharedMemoryUnregisterRequest& request,
    inference::CudaSharedMemoryUnregisterResponse*) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  return models->device_regions().Unregister(caller.tenant->name, request.name());
}

}  // namespace telegrad
