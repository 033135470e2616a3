// Events: points in streams that others wait for and that have a time.
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/state.h"

using fakecuda::Call;
using fakecuda::Driver;
using fakecuda::Event;
using fakecuda::Handle;

namespace {

constexpr unsigned int kDisableTiming = 2;
constexpr unsigned int kEventFlags = 3;  // BLOCKING_SYNC, DISABLE_TIMING; none of other processes

Event* FindEvent(Driver& driver, Handle handle) {
  const auto it = driver.events.find(handle);
  return it == driver.events.end() ? nullptr : &it->second;
}

}  // namespace

FAKE_CUDA_API int cuEventCreate(Handle* out, unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (out == nullptr || (flags & ~kEventFlags) != 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  *out = call.driver().NewHandle();
  call.driver().events[*out] = {
      .context = call.context().handle, .timing = (flags & kDisableTiming) == 0, .marker = nullptr};
  ++call.driver().counters.live_events;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuEventDestroy_v2(Handle handle) {
  Call call(Call::Needs::kContext);
  FAKE_RETURN_IF_FAILED(call);
  if (call.driver().events.erase(handle) == 0) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  --call.driver().counters.live_events;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuEventRecord(Handle handle, Handle stream_handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Event* event = FindEvent(call.driver(), handle);
  fakecuda::Stream* stream = call.FindStream(stream_handle);
  if (event == nullptr || stream == nullptr || event->context != stream->context) {
    return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  }
  event->marker = std::make_shared<fakecuda::Marker>();
  fakecuda::Operation operation;
  operation.marks = event->marker;
  Submit(call.driver(), *stream, std::move(operation));
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuEventQuery(Handle handle) {
  Call call;
  ++call.driver().counters.event_queries;
  FAKE_RETURN_IF_FAILED(call);
  const Event* event = FindEvent(call.driver(), handle);
  if (event == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  const auto* context = call.driver().FindContext(event->context);
  if (context->error != fakecuda::CUDA_SUCCESS) return context->error;
  const bool done = event->marker == nullptr || event->marker->done;
  return done ? fakecuda::CUDA_SUCCESS : fakecuda::CUDA_ERROR_NOT_READY;
}

FAKE_CUDA_API int cuEventSynchronize(Handle handle) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  const Event* event = FindEvent(driver, handle);
  if (event == nullptr) return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  const Handle context = event->context;
  const auto marker = event->marker;
  fakecuda::WaitForMarker(driver, call.lock(), marker);
  const auto* after = driver.FindContext(context);
  return after == nullptr ? fakecuda::CUDA_ERROR_CONTEXT_IS_DESTROYED : after->error;
}

FAKE_CUDA_API int cuEventElapsedTime(float* milliseconds, Handle begin, Handle end) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const Event* from = FindEvent(call.driver(), begin);
  const Event* to = FindEvent(call.driver(), end);
  if (milliseconds == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (from == nullptr || to == nullptr || !from->timing || !to->timing || from->marker == nullptr ||
      to->marker == nullptr) {
    return fakecuda::CUDA_ERROR_INVALID_HANDLE;
  }
  if (!from->marker->done || !to->marker->done) return fakecuda::CUDA_ERROR_NOT_READY;
  *milliseconds =
      std::chrono::duration<float, std::milli>(to->marker->time - from->marker->time).count();
  return fakecuda::CUDA_SUCCESS;
}
