// One function of the HIP runtime API for each method of stream::Driver. A thread selects its
// device before it calls.
#include "devices/hip/hip_driver.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "devices/hip/code_object.h"
#include "engine/base/status.h"

namespace telegrad::hip {
namespace {

using stream::Called;
using stream::KernelLaunch;

hipKernelNodeParams KernelNode(const KernelLaunch& launch) {
  const auto& [grid, group] = std::tie(launch.grid, launch.group);
  return {.blockDim = {group[0], group[1], group[2]},
          .extra = nullptr,
          .func = launch.function,
          .gridDim = {grid[0], grid[1], grid[2]},
          .kernelParams = launch.parameters,
          .sharedMemBytes = launch.local_bytes};
}

}  // namespace

// A function, and what it returns, as Called.
#define HIP_CALLED(name, ...) \
  Called { #name, api().name(__VA_ARGS__) }

HipDriver::HipDriver(std::shared_ptr<const Library> library) : library_(std::move(library)) {
#define HIP_CALL(role, name) calls_.role = {#name, api().name};
#include "devices/hip/calls.def"
#undef HIP_CALL
}

absl::Status HipDriver::Check(std::string_view call, stream::Result result) const {
  return library_->Check(call, result);
}

// After which the device answers nothing else. (Of a fault that the GPU itself reports, AMD's
// runtime ends the process instead, unless it was told otherwise.)
bool HipDriver::IsSticky(stream::Result result) const {
  switch (result) {
    case hipErrorDeinitialized:
    case hipErrorECCNotCorrectable:
    case hipErrorIllegalAddress:
    case hipErrorLaunchTimeOut:
    case hipErrorContextIsDestroyed:
    case hipErrorAssert:
    case hipErrorLaunchFailure:
    case hipErrorUnknown:
    case hipErrorRuntimeOther:
      return true;
    default:
      return false;
  }
}

// A launch counts the threads of its grid in 32 bits (HIP's documentation of
// hipModuleLaunchKernel).
int64_t HipDriver::MostGroups(int64_t group_threads) const {
  return std::min<int64_t>(INT32_MAX, UINT32_MAX / std::max<int64_t>(group_threads, 1));
}

Called HipDriver::Retain(int device, stream::ContextHandle* context) const {
  *context = nullptr;
  return HIP_CALLED(hipSetDevice, device);
}

// Nothing was retained: a device's state lives as long as the process.
Called HipDriver::Release(int) const { return {}; }

// As CudaDriver::Reset.
void HipDriver::Reset(int device) const {
  if (api().hipSetDevice(device) == hipSuccess) api().hipDeviceReset();
}

Called HipDriver::Enter(int device, stream::ContextHandle) const {
  return HIP_CALLED(hipSetDevice, device);
}

Called HipDriver::CopyAcross(const stream::Place& to, const stream::Place& from, size_t bytes,
                             hipStream_t stream) const {
  return HIP_CALLED(hipMemcpyPeerAsync, to.address, to.device, from.address, from.device, bytes,
                    stream);
}

Called HipDriver::AddKernel(hipGraphNode_t* node, hipGraph_t graph,
                            std::span<const hipGraphNode_t> after,
                            const KernelLaunch& launch) const {
  const hipKernelNodeParams kernel = KernelNode(launch);
  return HIP_CALLED(hipGraphAddKernelNode, node, graph, after.data(), after.size(), &kernel);
}

Called HipDriver::AddCopy(hipGraphNode_t* node, hipGraph_t graph,
                          std::span<const hipGraphNode_t> after, stream::ContextHandle,
                          hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes) const {
  return HIP_CALLED(hipGraphAddMemcpyNode1D, node, graph, after.data(), after.size(), to, from,
                    bytes, hipMemcpyDeviceToDevice);
}

Called HipDriver::SetKernel(hipGraphExec_t exec, hipGraphNode_t node,
                            const KernelLaunch& launch) const {
  const hipKernelNodeParams kernel = KernelNode(launch);
  return HIP_CALLED(hipGraphExecKernelNodeSetParams, exec, node, &kernel);
}

Called HipDriver::SetCopy(hipGraphExec_t exec, hipGraphNode_t node, stream::ContextHandle,
                          hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes) const {
  return HIP_CALLED(hipGraphExecMemcpyNodeSetParams1D, exec, node, to, from, bytes,
                    hipMemcpyDeviceToDevice);
}

int64_t HipDriver::CodeBytes(const ProgramImage& image) const {
  const auto kernel = ReadKernel(image.binary, image.name);
  return kernel.ok() ? kernel->loaded_bytes : 0;
}

// The function is told no length: it believes the headers of the file, so these are checked first.
Called HipDriver::LoadModule(const ProgramImage& image, hipModule_t* module,
                             std::string* log) const {
  if (const auto kernel = ReadKernel(image.binary, image.name); !kernel.ok()) {
    *log = ToStd(kernel.status().message());
    return {"hipModuleLoadData", hipErrorInvalidImage};
  }
  return HIP_CALLED(hipModuleLoadData, module, image.binary.data());
}

absl::StatusOr<stream::Entry> HipDriver::Resolve(stream::Context& context,
                                                 const ProgramImage& image, int64_t local_limit,
                                                 hipModule_t module) const {
  stream::Entry out;
  TG_RETURN_IF_ERROR(
      TG_HIP_IN(context, *this, hipModuleGetFunction, &out.function, module, image.name.c_str()));
  TG_ASSIGN_OR_RETURN(const KernelFacts kernel, ReadKernel(image.binary, image.name));
  const ProgramSignature& signature = image.signature;
  const int64_t bytes = ParametersBytes(signature.parameters);
  if (kernel.argument_bytes != bytes) {
    return InvalidArgument("it takes ", kernel.argument_bytes,
                           " bytes of parameters, its signature says ", bytes);
  }
  out.stack_bytes = kernel.stack_bytes;
  int threads = 0;
  TG_RETURN_IF_ERROR(TG_HIP_IN(context, *this, hipFuncGetAttribute, &threads,
                               HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, out.function));
  TG_RETURN_IF_ERROR(stream::CheckGroup(signature.group, threads));
  if (signature.local_bytes < 0 || signature.local_bytes > local_limit - kernel.local_bytes) {
    return InvalidArgument(signature.local_bytes, " bytes of local memory beside ",
                           kernel.local_bytes, " fixed ones; a workgroup has at most ",
                           local_limit);
  }
  return out;
}

}  // namespace telegrad::hip
