// Copies and memsets on streams. Pageable host memory is read before the call returns, and a copy
// to it has ended when the call returns; everything else waits for its turn.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/virtual_memory.h"
#include "tests/fakes/cuda/work.h"

using fakecuda::Call;
using fakecuda::DevicePointer;
using fakecuda::Driver;
using fakecuda::Handle;
using fakecuda::MemoryView;
using fakecuda::Operation;
using fakecuda::Outcome;
using fakecuda::PreparedCopy;
using fakecuda::Result;
using fakecuda::Stream;

namespace {

// Whether the context owns the bytes or may use them as a peer's.
bool Reaches(Call& call, DevicePointer address, uint64_t bytes) {
  return call.driver().Reaches(call.context(), address, bytes) ||
         call.driver().FindPinned(address, bytes) != nullptr;
}

bool Owns(Driver& driver, Handle context, DevicePointer address, uint64_t bytes) {
  if (const auto* const found = driver.FindDevice(address, bytes); found != nullptr) {
    return found->context == context;
  }
  return fakecuda::IsMapped(driver, address, bytes, {driver.FindContext(context)->device},
                            /*of_its_own=*/true);
}

// A driver copies directly where either reaches the other's memory.
bool Corrupts(Driver& driver, Handle to, Handle from) {
  if (driver.knobs.corrupt_peer != 1) return driver.knobs.corrupt_peer != 0;
  return driver.FindContext(to)->peers.contains(from) ||
         driver.FindContext(from)->peers.contains(to);
}

// The stream if the current context may use it here.
Result CheckStream(Call& call, Handle handle, Stream** stream) {
  *stream = call.FindStream(handle);
  if (*stream == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  return (*stream)->context == call.context().handle ? fakecuda::CUDA_SUCCESS
                                                     : fakecuda::CUDA_ERROR_INVALID_CONTEXT;
}

std::shared_ptr<fakecuda::Marker> SubmitCopy(Driver& driver, Stream& stream,
                                             const PreparedCopy& copy,
                                             std::shared_ptr<std::vector<uint8_t>> staged) {
  Operation operation;
  operation.contexts = copy.contexts;
  operation.run = [copy, staged = std::move(staged)](const MemoryView& memory) {
    PreparedCopy now = copy;
    if (staged != nullptr) now.from = reinterpret_cast<uint64_t>(staged->data());
    Outcome outcome;
    fakecuda::RunCopy(now, memory, &outcome);
    return outcome;
  };
  ++driver.counters.given_copies;
  return Submit(driver, stream, std::move(operation));
}

int HostCopy(bool to_device, DevicePointer device, const void* host, size_t bytes,
             Handle stream_handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Stream* stream = nullptr;
  if (const Result r = CheckStream(call, stream_handle, &stream); r != fakecuda::CUDA_SUCCESS) {
    return r;
  }
  if (bytes == 0) return fakecuda::CUDA_SUCCESS;
  Driver& driver = call.driver();
  const int64_t most = driver.knobs.largest_host_copy;
  if (most >= 0 && bytes > static_cast<uint64_t>(most)) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const auto at = reinterpret_cast<uint64_t>(host);
  if (host == nullptr || fakecuda::IsDeviceAddress(at) || !Reaches(call, device, bytes)) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  // Pinned memory is looked up again when the copy runs, like the device's.
  const bool pinned = driver.FindPinned(at, bytes) != nullptr;
  PreparedCopy copy = {.to_device = to_device || pinned,
                       .from_device = !to_device || pinned,
                       .to = to_device ? device : at,
                       .from = to_device ? at : device,
                       .bytes = bytes,
                       .contexts = {call.context().handle}};
  std::shared_ptr<std::vector<uint8_t>> staged;
  if (to_device && !pinned) {
    const auto* begin = static_cast<const uint8_t*>(host);
    staged = std::make_shared<std::vector<uint8_t>>(begin, begin + bytes);
  }
  const auto marker = SubmitCopy(driver, *stream, copy, staged);
  if (to_device || pinned) return fakecuda::CUDA_SUCCESS;
  const Handle context = call.context().handle;
  WaitForMarker(driver, call.lock(), marker);
  const auto* after = driver.FindContext(context);
  return after == nullptr ? fakecuda::CUDA_ERROR_CONTEXT_IS_DESTROYED : after->error;
}

}  // namespace

FAKE_CUDA_API int cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes,
                                       Handle stream) {
  return HostCopy(true, to, from, bytes, stream);
}

FAKE_CUDA_API int cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Handle stream) {
  return HostCopy(false, from, to, bytes, stream);
}

FAKE_CUDA_API int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes,
                                       Handle stream_handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Stream* stream = nullptr;
  if (const Result r = CheckStream(call, stream_handle, &stream); r != fakecuda::CUDA_SUCCESS) {
    return r;
  }
  if (bytes == 0) return fakecuda::CUDA_SUCCESS;
  if (!Reaches(call, to, bytes) || !Reaches(call, from, bytes)) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  SubmitCopy(call.driver(), *stream,
             {.to_device = true,
              .from_device = true,
              .to = to,
              .from = from,
              .bytes = bytes,
              .contexts = {call.context().handle}},
             nullptr);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemcpyPeerAsync(DevicePointer to, Handle to_context, DevicePointer from,
                                    Handle from_context, size_t bytes, Handle stream_handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Stream* stream = nullptr;
  if (const Result r = CheckStream(call, stream_handle, &stream); r != fakecuda::CUDA_SUCCESS) {
    return r;
  }
  Driver& driver = call.driver();
  for (const Handle context : {to_context, from_context}) {
    const auto* found = driver.FindContext(context);
    if (found == nullptr) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
    if (found->error != fakecuda::CUDA_SUCCESS) return found->error;
  }
  if (bytes == 0) return fakecuda::CUDA_SUCCESS;
  if (!Owns(driver, to_context, to, bytes) || !Owns(driver, from_context, from, bytes)) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  SubmitCopy(driver, *stream,
             {.to_device = true,
              .from_device = true,
              .to = to,
              .from = from,
              .bytes = bytes,
              .contexts = {call.context().handle, to_context, from_context},
              .corrupts = Corrupts(driver, to_context, from_context)},
             nullptr);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes,
                                  Handle stream_handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Stream* stream = nullptr;
  if (const Result r = CheckStream(call, stream_handle, &stream); r != fakecuda::CUDA_SUCCESS) {
    return r;
  }
  if (bytes == 0) return fakecuda::CUDA_SUCCESS;
  if (!Reaches(call, to, bytes)) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.run = [to, value, bytes](const MemoryView& memory) {
    Outcome outcome;
    fakecuda::RunMemset(to, value, bytes, memory, &outcome);
    return outcome;
  };
  Submit(call.driver(), *stream, std::move(operation));
  return fakecuda::CUDA_SUCCESS;
}
