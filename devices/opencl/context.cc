// The context and the command queues of a device. An end is told by a callback of the driver;
// where it does not come in time, the device counts as stuck.
#include "devices/opencl/context.h"

#include <utility>

#include "devices/api/keep_for_driver.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad::opencl {

// The end of an event, told by the driver on a thread of its own, which may be after everybody has
// given up.
struct CommandQueue::Ending {
  Mutex mutex;
  ConditionVariable told;
  bool ended TG_GUARDED_BY(mutex) = false;
  cl_int status TG_GUARDED_BY(mutex) = CL_COMPLETE;
};

void CommandQueue::Tell(cl_event, cl_int status, void* data) {
  const std::unique_ptr<std::shared_ptr<Ending>> ending(
      static_cast<std::shared_ptr<Ending>*>(data));
  {
    const MutexLock lock((*ending)->mutex);
    (*ending)->ended = true;
    (*ending)->status = status;
  }
  (*ending)->told.notify_all();
}

absl::StatusOr<std::shared_ptr<Context>> Context::Open(std::shared_ptr<const Library> library,
                                                       const PlatformDevice& device,
                                                       std::string name, uint64_t generation,
                                                       absl::Duration hang_limit) {
  const cl_context_properties properties[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(device.platform), 0};
  cl_int error = CL_SUCCESS;
  const cl_context handle =
      library->api().clCreateContext(properties, 1, &device.device, nullptr, nullptr, &error);
  TG_RETURN_IF_ERROR(opencl::Check("clCreateContext", error));
  return std::shared_ptr<Context>(new Context(std::move(library), device.device, handle,
                                              std::move(name), generation, hang_limit));
}

Context::~Context() {
  if (!stuck()) api().clReleaseContext(handle_);
}

std::string Context::title() const { return StrCat(name_, " (generation ", generation_, ")"); }

absl::Status Context::Check(std::string_view call, cl_int error) {
  const absl::Status status = opencl::Check(call, error);
  if (status.ok()) return status;
  if (error == CL_DEVICE_NOT_AVAILABLE) {
    Fail(absl::UnavailableError(
        StrCat(title(), " failed and takes no more work: ", ToStd(status.message()))));
    return health();
  }
  return absl::Status(status.code(), StrCat(name_, ": ", ToStd(status.message())));
}

void Context::Fail(const absl::Status& why) {
  std::vector<std::function<void()>> wakers;
  {
    const MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = DeviceLostError(ToStd(why.message()));
    wakers = wakers_;
  }
  for (const auto& wake : wakers) wake();
}

void Context::FailStuck(const absl::Status& why, std::function<bool()> has_ended) {
  {
    const MutexLock lock(mutex_);
    stuck_at_.push_back(std::move(has_ended));
  }
  // The device may write to memory of the process as long as that lives.
  KeepForDriver(shared_from_this());
  Fail(why);
}

absl::Status Context::health() const {
  const MutexLock lock(mutex_);
  return failure_;
}

bool Context::stuck() const {
  const MutexLock lock(mutex_);
  return !stuck_at_.empty();
}

void Context::AddWaker(std::function<void()> waker) {
  const MutexLock lock(mutex_);
  wakers_.push_back(std::move(waker));
}

void Context::Keep(std::shared_ptr<const void> kept) {
  const MutexLock lock(mutex_);
  kept_.push_back(std::move(kept));
}

bool Context::HasCalmed() {
  const MutexLock lock(mutex_);
  std::erase_if(stuck_at_, [](const auto& has_ended) { return has_ended(); });
  return stuck_at_.empty();
}

void Context::Discard() {
  std::vector<std::shared_ptr<const void>> kept;  // goes without the lock
  const MutexLock lock(mutex_);
  discarded_ = true;
  kept.swap(kept_);
}

bool Context::discarded() const {
  const MutexLock lock(mutex_);
  return discarded_;
}

absl::StatusOr<std::unique_ptr<CommandQueue>> CommandQueue::Create(
    std::shared_ptr<Context> context) {
  cl_int error = CL_SUCCESS;
  const cl_command_queue handle =
      context->api().clCreateCommandQueue(context->handle(), context->device(), 0, &error);
  TG_RETURN_IF_ERROR(context->Check("clCreateCommandQueue", error));
  return std::unique_ptr<CommandQueue>(new CommandQueue(std::move(context), handle));
}

CommandQueue::~CommandQueue() {
  if (!context_->stuck()) context_->api().clReleaseCommandQueue(handle_);
}

absl::Status CommandQueue::Await() {
  const auto ending = std::make_shared<Ending>();
  const auto has_ended = [ending] { return HasEnded(*ending); };
  if (context_->stuck()) {
    // Also what is on this queue ends before the device has.
    const bool is_told = Notify(ending).ok();
    context_->FailStuck(context_->health(), [=] { return is_told && has_ended(); });
    return context_->health();
  }
  if (const absl::Status status = Notify(ending); !status.ok()) return Drain(status);
  ReleasableLock lock(ending->mutex);
  const auto ended = [&]() TG_REQUIRES(ending->mutex) { return ending->ended; };
  if (context_->hang_limit() == absl::InfiniteDuration()) {
    ending->told.wait(lock, ended);
  } else if (!ending->told.wait_for(lock, absl::ToChronoNanoseconds(context_->hang_limit()),
                                    ended)) {
    lock.unlock();
    context_->FailStuck(
        absl::UnavailableError(StrCat(context_->title(),
                                      " is stuck and takes no more work: nothing ended for ",
                                      absl::FormatDuration(context_->hang_limit()))),
        has_ended);
    return context_->health();
  }
  if (ending->status >= CL_COMPLETE) return absl::OkStatus();
  context_->Fail(
      absl::UnavailableError(StrCat(context_->title(), " failed and takes no more work: ",
                                    ToStd(opencl::Check("a command", ending->status).message()))));
  return context_->health();
}

bool CommandQueue::HasEnded(Ending& ending) {
  const MutexLock lock(ending.mutex);
  return ending.ended;
}

// What is on the queue can only be waited for by an event behind it.
absl::Status CommandQueue::Notify(const std::shared_ptr<Ending>& ending) {
  cl_event event = nullptr;
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clEnqueueMarkerWithWaitList, handle_, 0, nullptr, &event));
  auto held = std::make_unique<std::shared_ptr<Ending>>(ending);
  const absl::Status status =
      TG_CL_IN(*context_, clSetEventCallback, event, CL_COMPLETE, &Tell, held.get());
  if (status.ok()) held.release();  // Tell's
  context_->api().clReleaseEvent(event);
  TG_RETURN_IF_ERROR(status);
  return TG_CL_IN(*context_, clFlush, handle_);
}

// Where there is no such event: waits without a limit, so that nothing is freed under a command.
absl::Status CommandQueue::Drain(const absl::Status& why) {
  const absl::Status finished = TG_CL_IN(*context_, clFinish, handle_);
  if (finished.ok()) return why;
  context_->FailStuck(absl::UnavailableError(StrCat(
                          context_->title(), " takes no more work, for it cannot be waited for: ",
                          ToStd(why.message()), ", ", ToStd(finished.message()))),
                      [] { return false; });
  return context_->health();
}

}  // namespace telegrad::opencl
