// The part of the HIP runtime API that this driver uses, declared here so that no SDK is needed to
// build. Names, values and layouts are AMD's (hip_runtime_api.h and driver_types.h of ROCm 6) and
// keep its spelling, so that they can be looked up there. Addresses in a GPU's memory are void*
// there and numbers here; both are passed alike. The functions are in symbols.def.
#pragma once

#include <array>
#include <cstddef>

#include "devices/stream/driver.h"

namespace telegrad::hip {

using hipDevice_t = int;
using hipDeviceptr_t = stream::Address;
using hipModule_t = stream::ModuleHandle;
using hipFunction_t = stream::FunctionHandle;
using hipStream_t = stream::StreamHandle;
using hipEvent_t = stream::EventHandle;
using hipGraph_t = stream::GraphHandle;
using hipGraphNode_t = stream::NodeHandle;
using hipGraphExec_t = stream::ExecHandle;
using hipHostFn_t = stream::HostFunction;
using hipError_t = stream::Result;
using hipIpcMemHandle_t = stream::MemoryHandle;
using hipMemGenericAllocationHandle_t = stream::PhysicalHandle;
using hipMemAllocationProp = stream::MemoryProperties;
using hipMemAccessDesc = stream::MemoryAccess;
using hipMemAllocationGranularity_flags = stream::GranularityOption;

enum HipResult : int {
  hipSuccess = 0,
  hipErrorOutOfMemory = 2,
  hipErrorDeinitialized = 4,
  hipErrorInvalidDeviceFunction = 98,
  hipErrorNoDevice = 100,
  hipErrorInvalidImage = 200,
  hipErrorNoBinaryForGpu = 209,
  hipErrorECCNotCorrectable = 214,
  hipErrorInvalidKernelFile = 218,
  hipErrorSharedObjectInitFailed = 303,
  hipErrorNotFound = 500,
  hipErrorNotReady = 600,
  hipErrorIllegalAddress = 700,
  hipErrorLaunchTimeOut = 702,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorContextIsDestroyed = 709,
  hipErrorAssert = 710,
  hipErrorLaunchFailure = 719,
  hipErrorUnknown = 999,
  hipErrorRuntimeOther = 1053,
};

enum hipDeviceAttribute_t : int {
  hipDeviceAttributeAsyncEngineCount = 2,
  hipDeviceAttributeClockRate = 5,  // kHz
  hipDeviceAttributeMaxThreadsPerMultiProcessor = 57,
  hipDeviceAttributeMemoryBusWidth = 59,   // bits
  hipDeviceAttributeMemoryClockRate = 60,  // kHz
  hipDeviceAttributeMultiprocessorCount = 63,
  hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
  hipDeviceAttributeVirtualMemoryManagementSupported = 89,
};

enum hipFunction_attribute : int {
  HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
};

enum hipMemcpyKind : int { hipMemcpyDeviceToDevice = 3 };

enum hipStreamFlags : unsigned int { hipStreamNonBlocking = 1 };
enum hipEventFlags : unsigned int { hipEventDefault = 0, hipEventDisableTiming = 2 };
inline constexpr unsigned int hipHostMallocPortable = 1;
inline constexpr unsigned int hipHostMallocMapped = 2;
inline constexpr unsigned int hipHostMallocCoherent = 0x4000'0000;

struct dim3 {
  unsigned int x, y, z;
};

struct hipKernelNodeParams {
  dim3 blockDim;
  void** extra;
  hipFunction_t func;
  dim3 gridDim;
  void** kernelParams;
  unsigned int sharedMemBytes;
};
static_assert(sizeof(hipKernelNodeParams) == 64);

// hipDeviceProp_tR0600, of which only the processor's name is used: "gfx942:sramecc+:xnack-".
struct hipDeviceProp_tR0600 {
  std::array<char, 1160> others;
  std::array<char, 256> gcnArchName;
  std::array<char, 56> more;
};
static_assert(sizeof(hipDeviceProp_tR0600) == 1472);

}  // namespace telegrad::hip
