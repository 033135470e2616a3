// Functions that do in HIP what another name does in CUDA, in the state of the thread's device.
#include "tests/fakes/hip/functions.h"

using fakehip::HipOf;

constexpr unsigned int kCoherent = 0x40000000;  // hipHostMallocCoherent

#define PASS_ON(hip, parameters, cuda, arguments) \
  FAKE_HIP_API int hip parameters {               \
    FAKE_HIP_USE();                               \
    return HipOf(cuda arguments);                 \
  }

PASS_ON(hipMemGetAddressRange, (DevicePointer * base, size_t* bytes, DevicePointer address),
        cuMemGetAddressRange_v2, (base, bytes, address))
PASS_ON(hipIpcGetMemHandle, (fakecuda::IpcHandle * handle, DevicePointer address),
        cuIpcGetMemHandle, (handle, address))
PASS_ON(hipIpcOpenMemHandle,
        (DevicePointer * address, fakecuda::IpcHandle handle, unsigned int flags),
        cuIpcOpenMemHandle_v2, (address, handle, flags))
PASS_ON(hipIpcCloseMemHandle, (DevicePointer address), cuIpcCloseMemHandle, (address))
PASS_ON(hipMemGetInfo, (size_t* free, size_t* total), cuMemGetInfo_v2, (free, total))
PASS_ON(hipMalloc, (DevicePointer * address, size_t bytes), cuMemAlloc_v2, (address, bytes))
PASS_ON(hipMemGetAllocationGranularity,
        (size_t* granularity, const fakecuda::AllocationProperties* properties, int option),
        cuMemGetAllocationGranularity, (granularity, properties, option))
PASS_ON(hipMemAddressReserve,
        (DevicePointer * address, size_t bytes, size_t alignment, DevicePointer wish,
         unsigned long long flags),
        cuMemAddressReserve, (address, bytes, alignment, wish, flags))
PASS_ON(hipMemAddressFree, (DevicePointer address, size_t bytes), cuMemAddressFree,
        (address, bytes))
PASS_ON(hipMemCreate,
        (Handle * handle, size_t bytes, const fakecuda::AllocationProperties* properties,
         unsigned long long flags),
        cuMemCreate, (handle, bytes, properties, flags))
PASS_ON(hipMemRelease, (Handle handle), cuMemRelease, (handle))
PASS_ON(hipMemMap,
        (DevicePointer address, size_t bytes, size_t offset, Handle handle,
         unsigned long long flags),
        cuMemMap, (address, bytes, offset, handle, flags))
PASS_ON(hipMemUnmap, (DevicePointer address, size_t bytes), cuMemUnmap, (address, bytes))
PASS_ON(hipMemSetAccess,
        (DevicePointer address, size_t bytes, const fakecuda::AccessDescription* descriptions,
         size_t count),
        cuMemSetAccess, (address, bytes, descriptions, count))
PASS_ON(hipHostMalloc, (void** address, size_t bytes, unsigned int flags), cuMemHostAlloc,
        (address, bytes, flags & ~kCoherent))
PASS_ON(hipHostGetDevicePointer, (DevicePointer * address, void* host, unsigned int flags),
        cuMemHostGetDevicePointer_v2, (address, host, flags))
PASS_ON(hipStreamWriteValue64,
        (Handle stream, DevicePointer address, uint64_t value, unsigned int flags),
        cuStreamWriteValue64_v2, (stream, address, value, flags))
PASS_ON(hipHostRegister, (void* address, size_t bytes, unsigned int flags), cuMemHostRegister_v2,
        (address, bytes, flags))
PASS_ON(hipHostUnregister, (void* address), cuMemHostUnregister, (address))
PASS_ON(hipMemcpyHtoDAsync, (DevicePointer to, const void* from, size_t bytes, Handle stream),
        cuMemcpyHtoDAsync_v2, (to, from, bytes, stream))
PASS_ON(hipMemcpyDtoHAsync, (void* to, DevicePointer from, size_t bytes, Handle stream),
        cuMemcpyDtoHAsync_v2, (to, from, bytes, stream))
PASS_ON(hipMemcpyDtoDAsync, (DevicePointer to, DevicePointer from, size_t bytes, Handle stream),
        cuMemcpyDtoDAsync_v2, (to, from, bytes, stream))
PASS_ON(hipMemsetD8Async, (DevicePointer to, unsigned char value, size_t bytes, Handle stream),
        cuMemsetD8Async, (to, value, bytes, stream))
PASS_ON(hipStreamCreateWithFlags, (Handle * stream, unsigned int flags), cuStreamCreate,
        (stream, flags))
PASS_ON(hipStreamDestroy, (Handle stream), cuStreamDestroy_v2, (stream))
PASS_ON(hipStreamQuery, (Handle stream), cuStreamQuery, (stream))
PASS_ON(hipStreamSynchronize, (Handle stream), cuStreamSynchronize, (stream))
PASS_ON(hipStreamWaitEvent, (Handle stream, Handle event, unsigned int flags), cuStreamWaitEvent,
        (stream, event, flags))
PASS_ON(hipLaunchHostFunc, (Handle stream, HostFunction function, void* data), cuLaunchHostFunc,
        (stream, function, data))
PASS_ON(hipEventCreateWithFlags, (Handle * event, unsigned int flags), cuEventCreate,
        (event, flags))
PASS_ON(hipEventDestroy, (Handle event), cuEventDestroy_v2, (event))
PASS_ON(hipEventRecord, (Handle event, Handle stream), cuEventRecord, (event, stream))
PASS_ON(hipEventQuery, (Handle event), cuEventQuery, (event))
PASS_ON(hipEventElapsedTime, (float* milliseconds, Handle begin, Handle end), cuEventElapsedTime,
        (milliseconds, begin, end))
PASS_ON(hipModuleUnload, (Handle module), cuModuleUnload, (module))
PASS_ON(hipModuleGetFunction, (Handle * function, Handle module, const char* name),
        cuModuleGetFunction, (function, module, name))
PASS_ON(hipFuncGetAttribute, (int* value, int attribute, Handle function), cuFuncGetAttribute,
        (value, attribute, function))
PASS_ON(hipGraphCreate, (Handle * graph, unsigned int flags), cuGraphCreate, (graph, flags))
PASS_ON(hipGraphDestroy, (Handle graph), cuGraphDestroy, (graph))
PASS_ON(hipGraphInstantiateWithFlags, (Handle * exec, Handle graph, unsigned long long flags),
        cuGraphInstantiateWithFlags, (exec, graph, flags))
PASS_ON(hipGraphExecDestroy, (Handle exec), cuGraphExecDestroy, (exec))
PASS_ON(hipGraphLaunch, (Handle exec, Handle stream), cuGraphLaunch, (exec, stream))

// Null is freed without an error.
FAKE_HIP_API int hipFree(DevicePointer address) {
  FAKE_HIP_USE();
  return address == 0 ? fakehip::hipSuccess : HipOf(cuMemFree_v2(address));
}

FAKE_HIP_API int hipHostFree(void* address) {
  FAKE_HIP_USE();
  return address == nullptr ? fakehip::hipSuccess : HipOf(cuMemFreeHost(address));
}

FAKE_HIP_API int fakeHipSet(const char* knob, int64_t value) { return fakeCudaSet(knob, value); }
FAKE_HIP_API int64_t fakeHipGet(const char* knob) { return fakeCudaGet(knob); }
FAKE_HIP_API int64_t fakeHipCount(const char* counter) { return fakeCudaCount(counter); }
FAKE_HIP_API void fakeHipRelease() { fakeCudaRelease(); }
FAKE_HIP_API size_t fakeHipProblems(char* text, size_t size) {
  return fakeCudaProblems(text, size);
}
FAKE_HIP_API void fakeHipReset() { fakeCudaReset(); }
