// Contexts: those that programs create, the primary ones of the devices, and access between
// devices.
#include "tests/fakes/cuda/context_life.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/state.h"

using fakecuda::Call;
using fakecuda::Context;
using fakecuda::CurrentContext;
using fakecuda::Device;
using fakecuda::Driver;
using fakecuda::Handle;

namespace {

constexpr unsigned int kKnownFlags = 0xff;  // CU_CTX_FLAGS_MASK

// What forbids a new context on the device.
fakecuda::Result CanMake(Driver& driver, int device) {
  if (device < 0 || static_cast<size_t>(device) >= driver.devices.size()) {
    return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  }
  if (driver.knobs.busy_device == device) return fakecuda::CUDA_ERROR_DEVICE_UNAVAILABLE;
  return fakecuda::CUDA_SUCCESS;
}

}  // namespace

FAKE_CUDA_API int cuCtxCreate_v2(Handle* context, unsigned int flags, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (context == nullptr || (flags & ~kKnownFlags) != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const auto can = CanMake(call.driver(), device);
  if (can != fakecuda::CUDA_SUCCESS) return can;
  *context = CurrentContext() = fakecuda::MakeContext(call.driver(), device).handle;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuCtxDestroy_v2(Handle context) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  const Context* found = call.driver().FindContext(context);
  if (found == nullptr) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  if (call.driver().devices[static_cast<size_t>(found->device)].primary == context) {
    return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  }
  fakecuda::RemoveContext(call.driver(), call.lock(), context);
  if (CurrentContext() == context) CurrentContext() = 0;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuCtxSetCurrent(Handle context) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (context != 0 && call.driver().FindContext(context) == nullptr) {
    return call.driver().destroyed_contexts.contains(context)
               ? fakecuda::CUDA_ERROR_CONTEXT_IS_DESTROYED
               : fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  }
  CurrentContext() = context;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuCtxSynchronize() {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  const Handle handle = call.context().handle;
  std::vector<std::shared_ptr<fakecuda::Marker>> last;
  for (const auto& [s, stream] : driver.streams) {
    if (stream->context == handle && !stream->operations.empty()) {
      last.push_back(stream->operations.back().marks);
    }
  }
  for (const auto& marker : last) fakecuda::WaitForMarker(driver, call.lock(), marker);
  const Context* context = driver.FindContext(handle);
  return context == nullptr ? fakecuda::CUDA_ERROR_CONTEXT_IS_DESTROYED : context->error;
}

FAKE_CUDA_API int cuCtxEnablePeerAccess(Handle peer, unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (flags != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const Context* other = call.driver().FindContext(peer);
  if (other == nullptr || peer == call.context().handle) {
    return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  }
  if (call.driver().knobs.peer_access == 0 || other->device == call.context().device) {
    return fakecuda::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  if (!call.context().peers.insert(peer).second) {
    return fakecuda::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuCtxDisablePeerAccess(Handle peer) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (call.driver().FindContext(peer) == nullptr) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  return call.context().peers.erase(peer) == 1 ? fakecuda::CUDA_SUCCESS
                                               : fakecuda::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

FAKE_CUDA_API int cuDevicePrimaryCtxRetain(Handle* context, int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (context == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const auto can = CanMake(call.driver(), device);
  if (can != fakecuda::CUDA_SUCCESS) return can;
  Device& d = call.driver().devices[static_cast<size_t>(device)];
  if (d.primary_count++ == 0) d.primary = fakecuda::MakeContext(call.driver(), device).handle;
  *context = d.primary;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDevicePrimaryCtxRelease_v2(int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  if (device < 0 || static_cast<size_t>(device) >= driver.devices.size()) {
    return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  }
  Device& d = driver.devices[static_cast<size_t>(device)];
  if (d.primary_count == 0) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  if (--d.primary_count > 0) return fakecuda::CUDA_SUCCESS;
  const Handle context = d.primary;
  d.primary = 0;
  fakecuda::RemoveContext(driver, call.lock(), context);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuDevicePrimaryCtxReset_v2(int device) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  if (device < 0 || static_cast<size_t>(device) >= driver.devices.size()) {
    return fakecuda::CUDA_ERROR_INVALID_DEVICE;
  }
  const Handle context = driver.devices[static_cast<size_t>(device)].primary;
  if (context != 0) fakecuda::EmptyContext(driver, call.lock(), context, /*is_reset=*/true);
  return fakecuda::CUDA_SUCCESS;
}
