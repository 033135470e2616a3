// The counter and the failures change under one lock, so that whoever sees a value also sees how it
// ended.
//
// Failures are remembered for good, because a buffer may be asked about long after its point.
// Neighbours with one status share an entry, so a failed device costs one entry however much
// follows. Should a timeline still collect kMaxFailures separate ones, the two oldest become one
// that also covers what lies between: a failure is never forgotten, at worst an old success is
// taken for one.
#include "devices/api/timeline.h"

#include <iterator>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "devices/api/shared_timeline.h"
#include "engine/base/burst.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFailures = 4096;

}  // namespace

Timeline::Timeline() = default;
Timeline::~Timeline() = default;

absl::StatusOr<std::string> Timeline::Export() {
  const MutexLock lock(mutex_);
  if (exported_ == nullptr) {
    TG_ASSIGN_OR_RETURN(exported_, ExportedTimeline::Create());
    for (const auto& [last, failure] : failed_) {
      exported_->Fail(failure.first, last, failure.status);
    }
    exported_->Reach(value_.load(std::memory_order_relaxed));
  }
  return exported_->handle();
}

void Timeline::RecordFailure(uint64_t first, uint64_t last, const absl::Status& status) {
  if (!failed_.empty()) {
    const auto newest = std::prev(failed_.end());
    if (newest->first + 1 == first && newest->second.status == status) {
      auto grown = failed_.extract(newest);
      grown.key() = last;
      failed_.insert(failed_.end(), std::move(grown));
      return;
    }
  }
  failed_.emplace_hint(failed_.end(), last, Failure{first, status});
  if (failed_.size() > kMaxFailures) {
    const auto oldest = failed_.begin();
    std::next(oldest)->second.first = oldest->second.first;
    failed_.erase(oldest);
  }
}

absl::Status Timeline::StatusLocked(uint64_t value) const {
  const auto at = failed_.lower_bound(value);
  return at != failed_.end() && at->second.first <= value ? at->second.status : absl::OkStatus();
}

void Timeline::Signal(uint64_t value, const absl::Status& status) {
  absl::InlinedVector<std::pair<Callback, absl::Status>, 2> due;
  {
    MutexLock lock(mutex_);
    const uint64_t before = value_.load(std::memory_order_relaxed);
    if (value <= before) return;
    if (!status.ok()) RecordFailure(before + 1, value, status);
    value_.store(value, std::memory_order_release);
    if (exported_ != nullptr) {
      if (!status.ok()) exported_->Fail(before + 1, value, status);
      exported_->Reach(value);
    }
    const auto end = waiters_.upper_bound(value);
    for (auto at = waiters_.begin(); at != end; ++at) {
      due.emplace_back(std::move(at->second), StatusLocked(at->first));
    }
    waiters_.erase(waiters_.begin(), end);
    // Under the lock: a waiter that wakes may be the last to hold this timeline.
    reached_.notify_all();
  }
  for (auto& [callback, outcome] : due) callback(outcome);
}

absl::Status Timeline::Wait(uint64_t value, absl::Duration timeout) {
  const auto reached = [&] { return value_.load(std::memory_order_relaxed) >= value; };
  Burst::Flush();
  ReleasableLock lock(mutex_);
  // A year stands for ever: the clock's arithmetic overflows near infinity.
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);
  if (timeout > kLongest) {
    reached_.wait(lock, reached);
  } else if (!reached_.wait_for(lock, absl::ToChronoNanoseconds(timeout), reached)) {
    return absl::DeadlineExceededError("a device did not get to a point in time");
  }
  return StatusLocked(value);
}

void Timeline::OnReached(uint64_t value, Callback callback) {
  absl::Status outcome;
  {
    MutexLock lock(mutex_);
    if (value_.load(std::memory_order_relaxed) < value) {
      waiters_.emplace(value, std::move(callback));
      return;
    }
    outcome = StatusLocked(value);
  }
  callback(outcome);
}

absl::Status Timeline::StatusOf(uint64_t value) const {
  MutexLock lock(mutex_);
  return StatusLocked(value);
}

}  // namespace telegrad
