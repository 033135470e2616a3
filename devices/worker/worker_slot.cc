// Starts the worker, loads the programs that the one before had, and gives runs the current
// worker. After a failed start it waits for a growing pause.
#include "devices/worker/worker_slot.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "devices/api/trace.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Longer than any start, which has limits of its own.
constexpr std::chrono::seconds kLongestStart{300};

}  // namespace

WorkerSlot::WorkerSlot(DeviceWorker::Options options, std::shared_ptr<Arena> arena,
                       std::function<void()> wake)
    : options_(std::move(options)), arena_(std::move(arena)), wake_(std::move(wake)) {}

absl::StatusOr<std::shared_ptr<DeviceWorker>> WorkerSlot::Ready() const {
  const MutexLock lock(mutex_);
  if (worker_ != nullptr) return worker_;
  if (!why_.ok()) return why_;
  return absl::UnavailableError(StrCat(options_.whose, " was not started"));
}

absl::StatusOr<std::shared_ptr<DeviceWorker>> WorkerSlot::AwaitReady() {
  ReleasableLock lock(mutex_);
  if (!wanted_) {
    wanted_ = true;
    lock.unlock();
    wake_();
    lock.lock();
  }
  const auto until = std::chrono::steady_clock::now() + kLongestStart;
  // Not while it pauses because several ended at once; its next start is waited for.
  while (worker_ == nullptr && pause_ns_ == 0 &&
         (lives_.pause_ns() == 0 || SteadyNs() >= next_try_ns_) &&
         changed_.wait_until(lock, until) != std::cv_status::timeout) {
  }
  if (worker_ != nullptr) return worker_;
  if (!why_.ok()) return why_;
  return absl::UnavailableError(StrCat(options_.whose, " did not start in time"));
}

absl::Status WorkerSlot::StartError() const {
  const MutexLock lock(mutex_);
  return start_error_;
}

absl::Status WorkerSlot::Health() const {
  const MutexLock lock(mutex_);
  return worker_ != nullptr ? worker_->KnownOver() : why_;
}

uint64_t WorkerSlot::generation() const {
  const MutexLock lock(mutex_);
  return std::max<uint64_t>(started_, 1);
}

absl::Status WorkerSlot::Recover() {
  ReleasableLock lock(mutex_);
  if (HasOne() || (worker_ == nullptr && why_.ok())) {
    return FailedPrecondition(options_.whose, " has not ended");
  }
  // A start that is under way may have failed already, of what has been repaired meanwhile.
  const uint64_t begun = asked_ = begun_;
  if (lives_.pause_ns() == 0) next_try_ns_ = 0;
  lock.unlock();
  wake_();
  lock.lock();
  const auto until = std::chrono::steady_clock::now() + kLongestStart;
  while (!HasOne() && failed_ <= begun &&
         changed_.wait_until(lock, until) != std::cv_status::timeout) {
  }
  if (HasOne()) return absl::OkStatus();
  return worker_ != nullptr ? worker_->KnownOver() : why_;
}

absl::Status WorkerSlot::LoadInto(DeviceWorker& worker,
                                  const std::shared_ptr<const WorkerProgram>& program) {
  const MutexLock lock(loading_);
  if (const auto known = programs_.find(program->id());
      known != programs_.end() && !known->second.expired()) {
    return worker.Over();
  }
  TG_RETURN_IF_ERROR(worker.Load(program->id(), program->image().name, program->image().binary));
  programs_[program->id()] = program;
  if (programs_.size() < sweep_at_) return absl::OkStatus();
  for (auto it = programs_.begin(); it != programs_.end();) {
    if (it->second.expired()) worker.Drop(it->first);
    it = it->second.expired() ? programs_.erase(it) : std::next(it);
  }
  sweep_at_ = 2 * programs_.size() + 64;
  return absl::OkStatus();
}

int WorkerSlot::socket() const {
  const MutexLock lock(mutex_);
  return worker_ == nullptr ? -1 : worker_->socket();
}

int64_t WorkerSlot::next_look_ns() const {
  const MutexLock lock(mutex_);
  return wanted_ && worker_ == nullptr ? next_try_ns_ : INT64_MAX;
}

void WorkerSlot::PutOff(int64_t ns) {
  next_try_ns_ = SteadyNs() + ns;
  put_off_ns_ += ns;
}

void WorkerSlot::Bury(const absl::Status& how, bool at_once) {
  const MutexLock lock(mutex_);
  worker_ = nullptr;
  PutOff(lives_.Ended(at_once));
  const std::string told = ShortLives::Told(lives_.in_a_row());
  why_ = DeviceLostError(
      StrCat(ToStd(how.message()), told.empty() ? "; a new one is being started" : told));
  changed_.notify_all();
}

// Loads again what the one before had. A program that ends the worker is left to who runs it.
absl::StatusOr<std::shared_ptr<DeviceWorker>> WorkerSlot::StartOne() {
  const MutexLock loading(loading_);
  DeviceWorker::Options options = options_;
  while (true) {
    {
      const MutexLock lock(mutex_);
      options.generation = started_ + 1;
    }
    auto started = DeviceWorker::Start(options);
    if (!started.ok()) return started.status();
    const std::shared_ptr<DeviceWorker> worker = *std::move(started);
    absl::Status over;
    for (auto it = programs_.begin(); over.ok() && it != programs_.end();) {
      const auto program = it->second.lock();
      const bool loaded =
          program != nullptr &&
          worker->Load(program->id(), program->image().name, program->image().binary).ok();
      it = loaded ? std::next(it) : programs_.erase(it);
      over = worker->Over();
    }
    if (over.ok()) return worker;
    // Else one program fewer.
  }
}

void WorkerSlot::Look(const std::function<void(const WorkerEvent&)>& on_event) {
  std::shared_ptr<DeviceWorker> worker;
  std::string ended;
  {
    const MutexLock lock(mutex_);
    if (!wanted_) return;
    worker = worker_;
    if (!why_.ok()) ended = ToStd(why_.message());
  }
  if (worker != nullptr) {
    const absl::Status over = worker->Over();
    if (over.ok()) return;
    Bury(over, worker->EndedAtOnce());
    ended = ToStd(over.message());
    worker.reset();
  }
  if (SteadyNs() < next_look_ns()) return;
  uint64_t number;
  {
    const MutexLock lock(mutex_);
    number = ++begun_;
  }
  const auto started = StartOne();
  WorkerEvent event{.worker = options_.whose, .ended = std::move(ended)};
  {
    const MutexLock lock(mutex_);
    if (started.ok()) {
      event.pid = (*started)->pid();
      worker_ = *started;
      ++started_;
      pause_ns_ = 0;
      event.pause = absl::Nanoseconds(std::exchange(put_off_ns_, 0));
    } else {
      event.ended = ToStd(started.status().message());
      start_error_ = started.status();
      why_ = DeviceLostError(StrCat("the server cannot start ", options_.whose, " (generation ",
                                    std::max<uint64_t>(started_, 1),
                                    "); its log says why: ask its operator, and try again"));
      failed_ = number;
      pause_ns_ = NextStartPauseNs(pause_ns_);
      const int64_t pause = asked_ >= number ? 0 : pause_ns_;
      PutOff(pause);
      event.pause = absl::Nanoseconds(pause);
    }
    changed_.notify_all();
  }
  if (on_event) on_event(event);
}

}  // namespace telegrad
