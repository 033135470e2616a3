// The thread looks every few milliseconds as long as anything runs, and sleeps once nothing has for
// a while; so a short run costs no clock and, but for the first one, wakes nobody.
#include "devices/cpu/launch_watch.h"

#include <chrono>

#include "devices/api/trace.h"
#include "devices/cpu/interrupt.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr std::chrono::milliseconds kLookEvery{10};
constexpr int kLooksBeforeSleep = 50;

}  // namespace

LaunchWatch::LaunchWatch(WorkerPool* pool, absl::Duration limit) : pool_(*pool), limit_(limit) {
  if (kCanInterruptKernels) thread_ = std::thread([this] { Watch(); });
}

LaunchWatch::~LaunchWatch() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LaunchWatch::Begin(const Cancellation* cancellation) {
  const MutexLock lock(mutex_);
  active_ = true;
  ++begun_;
  cancellation_ = cancellation;
  caller_ = pthread_self();
  if (asleep_) changed_.notify_all();
}

void LaunchWatch::End() {
  const MutexLock lock(mutex_);
  active_ = false;
  cancellation_ = nullptr;
}

absl::Status LaunchWatch::why() {
  const MutexLock lock(mutex_);
  return why_;
}

// Why the job is to end now, or OK.
absl::Status LaunchWatch::LookLocked(uint64_t job, int64_t now) {
  if (job != job_) {
    job_ = job;
    since_ = now;
    return absl::OkStatus();
  }
  if (cancellation_ != nullptr) TG_RETURN_IF_ERROR(cancellation_->Check());
  if (absl::Nanoseconds(now - since_) <= limit_) return absl::OkStatus();
  return ResourceExhausted("a launch ran for longer than the limit of ",
                           absl::ToInt64Milliseconds(limit_),
                           " ms, launch_time, and was ended; cut the work into smaller pieces, or "
                           "raise it with --launch-time");
}

void LaunchWatch::Watch() {
  ReleasableLock lock(mutex_);
  uint64_t begun = 0;
  for (int quiet = 0; !stop_;) {
    quiet = active_ || begun != begun_ ? 0 : quiet + 1;
    begun = begun_;
    if (quiet > kLooksBeforeSleep) {
      asleep_ = true;
      while (!stop_ && begun == begun_) changed_.wait(lock);
      asleep_ = false;
      continue;
    }
    if (const uint64_t job = pool_.job(); active_ && job != 0) {
      if (const absl::Status why = LookLocked(job, SteadyNs()); !why.ok()) {
        why_ = why;
        pool_.Interrupt(job, caller_);
      }
    }
    const auto until = std::chrono::steady_clock::now() + kLookEvery;
    while (!stop_ && changed_.wait_until(lock, until) != std::cv_status::timeout) {
    }
  }
}

}  // namespace telegrad
