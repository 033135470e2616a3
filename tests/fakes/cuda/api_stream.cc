// Streams and host functions on them.
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/state.h"
#include "tests/fakes/cuda/work.h"

using fakecuda::Call;
using fakecuda::DevicePointer;
using fakecuda::Driver;
using fakecuda::Handle;
using fakecuda::Stream;

FAKE_CUDA_API int cuStreamCreate(Handle* out, unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (out == nullptr || flags > 1) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  auto stream = std::make_shared<Stream>();
  stream->handle = call.driver().NewHandle();
  stream->context = call.context().handle;
  stream->blocking = flags == 0;  // CU_STREAM_NON_BLOCKING is 1
  *out = stream->handle;
  call.driver().streams[stream->handle] = std::move(stream);
  ++call.driver().counters.live_streams;
  return fakecuda::CUDA_SUCCESS;
}

// Returns at once; what the stream still has is done.
FAKE_CUDA_API int cuStreamDestroy_v2(Handle handle) {
  Call call(Call::Needs::kContext);
  FAKE_RETURN_IF_FAILED(call);
  Stream* stream = call.FindStream(handle);
  if (handle == 0 || stream == nullptr || stream->is_default) {
    return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  }
  --call.driver().counters.live_streams;
  stream->destroyed = true;
  if (stream->operations.empty()) call.driver().streams.erase(handle);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuStreamQuery(Handle handle) {
  Call call;
  ++call.driver().counters.stream_queries;
  FAKE_RETURN_IF_FAILED(call);
  const Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  return fakecuda::Idle(*stream) ? fakecuda::CUDA_SUCCESS : fakecuda::CUDA_ERROR_NOT_READY;
}

FAKE_CUDA_API int cuStreamSynchronize(Handle handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  Driver& driver = call.driver();
  const Handle context = stream->context;
  fakecuda::WaitForStream(driver, call.lock(), stream->handle);
  const auto* after = driver.FindContext(context);
  return after == nullptr ? fakecuda::CUDA_ERROR_CONTEXT_IS_DESTROYED : after->error;
}

FAKE_CUDA_API int cuStreamWaitEvent(Handle handle, Handle event, unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  Stream* stream = call.FindStream(handle);
  const auto it = driver.events.find(event);
  if (stream == nullptr || it == driver.events.end()) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const bool is_peers = it->second.context != stream->context;
  if (is_peers && driver.knobs.peer_wait_error != 0) {
    return static_cast<int>(driver.knobs.peer_wait_error);
  }
  ++driver.counters.event_waits;
  driver.counters.peer_event_waits += is_peers ? 1 : 0;
  if (it->second.marker == nullptr) return fakecuda::CUDA_SUCCESS;  // nothing was recorded
  fakecuda::Operation operation;
  operation.waits = {it->second.marker};
  Submit(driver, *stream, std::move(operation));
  return fakecuda::CUDA_SUCCESS;
}

// The word has its old value until the stream's turn comes, and for good if the context has failed
// by then.
FAKE_CUDA_API int cuStreamWriteValue64_v2(Handle handle, DevicePointer address, uint64_t value,
                                          unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (driver.knobs.stream_words == 0) return fakecuda::CUDA_ERROR_NOT_SUPPORTED;
  const bool is_there = driver.Reaches(call.context(), address, sizeof(value)) ||
                        driver.FindMapped(address, sizeof(value)) != nullptr;
  if (address % sizeof(value) != 0 || flags != 0 || !is_there) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const bool arrives = !fakecuda::Now(&driver.knobs.lose_word);
  fakecuda::Operation operation;
  operation.run = [address, value, arrives](const fakecuda::MemoryView& memory) {
    fakecuda::Outcome outcome;
    if (arrives) fakecuda::RunWord(address, value, memory, &outcome);
    return outcome;
  };
  Submit(driver, *stream, std::move(operation));
  return fakecuda::CUDA_SUCCESS;
}

// Not called if the context has failed by then.
FAKE_CUDA_API int cuLaunchHostFunc(Handle handle, fakecuda::HostFunction function, void* data) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Stream* stream = call.FindStream(handle);
  if (stream == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  fakecuda::Operation operation;
  operation.run = [function, data](const fakecuda::MemoryView&) {
    fakecuda::CallHostFunction(function, data);
    fakecuda::Outcome outcome;
    outcome.counted.host_functions = 1;
    return outcome;
  };
  Submit(call.driver(), *stream, std::move(operation));
  return fakecuda::CUDA_SUCCESS;
}
