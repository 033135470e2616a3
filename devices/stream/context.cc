// The primary context of the device, which other libraries of the process would share.
#include "devices/stream/context.h"

#include <utility>

#include "devices/api/keep_for_driver.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad::stream {
absl::StatusOr<std::shared_ptr<Context>> Context::Open(std::shared_ptr<const Driver> driver,
                                                       int device, std::string name,
                                                       uint64_t generation) {
  ContextHandle handle = nullptr;
  const Called retained = driver->Retain(device, &handle);
  TG_RETURN_IF_ERROR(driver->Check(retained.name, retained.result));
  return std::shared_ptr<Context>(
      new Context(std::move(driver), device, handle, std::move(name), generation));
}

absl::Status Context::Enter() { return Check(driver_->Enter(device_, handle_)); }

Context::~Context() {
  std::vector<EventHandle> events = std::move(timed_);
  events.insert(events.end(), untimed_.begin(), untimed_.end());
  Release([&] {
    for (const EventHandle event : events) calls().event_destroy(event);
  });
  if (discarded()) return;
  // Else the next that opens it would find the same error, as after a reset that was refused.
  dead() ? driver_->Reset(device_) : (void)driver_->Release(device_);
}

std::string Context::title() const { return StrCat(name_, " (generation ", generation_, ")"); }

void Context::OnDiscard(std::function<void()> give_back) {
  const MutexLock lock(mutex_);
  on_discard_.push_back(std::move(give_back));
}

void Context::Discard() {
  std::vector<std::shared_ptr<const void>> kept;
  std::vector<std::function<void()>> on_discard;
  {
    ReleasableLock lock(mutex_);
    closing_ = true;
    while (uses_ > 0) unused_.wait(lock);
    kept.swap(kept_);
    on_discard.swap(on_discard_);
  }
  const ExclusiveLock lock(life_);
  discarded_ = true;
  driver_->Reset(device_);
  for (const auto& give_back : on_discard) give_back();
}

absl::StatusOr<std::shared_ptr<const void>> Context::UseByPeer() {
  {
    const MutexLock lock(mutex_);
    if (!closing_) {
      ++uses_;
      return std::shared_ptr<const void>(this, [self = shared_from_this()](const void*) {
        const MutexLock ending(self->mutex_);
        --self->uses_;
        self->unused_.notify_all();
      });
    }
  }
  return Lost();
}

absl::Status Context::Lost() const {
  return DeviceLostError(StrCat("memory of ", name_, " is of generation ", generation_,
                                ", which was lost: ", ToStd(health().message())));
}

void Context::Keep(std::shared_ptr<const void> kept) {
  const MutexLock lock(mutex_);
  kept_.push_back(std::move(kept));
}

std::vector<StreamHandle> Context::Streams() const {
  const MutexLock lock(streams_mutex_);
  return streams_;
}

// No stream is destroyed meanwhile.
bool Context::IsIdle() {
  Result result = kSuccess;
  {
    const MutexLock lock(streams_mutex_);
    for (size_t i = 0; result == kSuccess && i < streams_.size(); ++i) {
      result = calls().stream_query(streams_[i]);
    }
  }
  if (result != kSuccess && result != kNotReady) (void)Check(calls().stream_query.name, result);
  return result == kSuccess;
}

bool Context::HasCalmed() {
  for (const StreamHandle stream : Streams()) {
    if (dead()) break;
    if (!Enter().ok()) continue;
    const Result result = calls().stream_query(stream);
    if (result == kNotReady) return false;
    (void)Check(calls().stream_query.name, result);
    if (result != kSuccess && !dead()) return false;
  }
  const MutexLock lock(mutex_);
  stuck_ = false;
  return true;
}

absl::Status Context::Check(std::string_view call, Result result) {
  if (result == kSuccess) return absl::OkStatus();
  const absl::Status status = driver_->Check(call, result);
  if (driver_->IsSticky(result)) {
    {
      const MutexLock lock(mutex_);
      dead_ = true;
    }
    Fail(absl::UnavailableError(
        StrCat(title(), " failed and takes no more work: ", ToStd(status.message()))));
    return health();
  }
  return absl::Status(status.code(), StrCat(name_, ": ", ToStd(status.message())));
}

void Context::Fail(const absl::Status& why, bool stuck) {
  std::vector<std::shared_ptr<Bell>> bells;
  {
    const MutexLock lock(mutex_);
    if (health_.ok()) health_ = DeviceLostError(ToStd(why.message()));
    stuck_ |= stuck;
    bells = bells_;
  }
  // The GPU may write to its memory and ring its bells as long as the process lives.
  if (stuck) KeepForDriver(shared_from_this());
  for (const auto& bell : bells) bell->Ring();
}

absl::Status Context::health() const {
  const MutexLock lock(mutex_);
  return health_;
}

bool Context::stuck() const {
  const MutexLock lock(mutex_);
  return stuck_;
}

bool Context::dead() const {
  const MutexLock lock(mutex_);
  return dead_;
}

void Context::AddBell(std::shared_ptr<Bell> bell) {
  const MutexLock lock(mutex_);
  bells_.push_back(std::move(bell));
}

absl::StatusOr<EventHandle> Context::TakeEvent(unsigned int flags) {
  {
    const MutexLock lock(mutex_);
    std::vector<EventHandle>& free = FreeEvents(flags);
    if (!free.empty()) {
      const EventHandle event = free.back();
      free.pop_back();
      return event;
    }
  }
  EventHandle event = nullptr;
  TG_RETURN_IF_ERROR(TG_STREAM(*this, event_create, &event, flags));
  return event;
}

void Context::ReturnEvent(EventHandle event, unsigned int flags) {
  const MutexLock lock(mutex_);
  FreeEvents(flags).push_back(event);
}

absl::StatusOr<std::unique_ptr<Stream>> Stream::Create(std::shared_ptr<Context> context) {
  TG_RETURN_IF_ERROR(context->Enter());
  StreamHandle handle = nullptr;
  TG_RETURN_IF_ERROR(TG_STREAM(*context, stream_create, &handle, kNonBlocking));
  {
    const MutexLock lock(context->streams_mutex_);
    context->streams_.push_back(handle);
  }
  return std::unique_ptr<Stream>(new Stream(std::move(context), handle));
}

Stream::~Stream() {
  context_->ReleaseUnlocked([&] {
    context_->calls().stream_synchronize(handle_);
    {
      const MutexLock lock(context_->streams_mutex_);
      std::erase(context_->streams_, handle_);
    }
    context_->calls().stream_destroy(handle_);
  });
}

}  // namespace telegrad::stream
