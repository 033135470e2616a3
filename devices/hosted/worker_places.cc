#include "devices/hosted/worker_places.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {

void WorkerPlaces::Place::NoteEnding() {
  const MutexLock lock(places_->mutex_);
  is_ending_ = true;
  ++places_->ending_;
}

absl::StatusOr<std::unique_ptr<WorkerPlaces::Place>> WorkerPlaces::Take(
    const std::function<void()>& give_back, const std::function<bool()>& end_one) {
  const MutexLock one(taking_);
  bool gave_back = false;
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.patience);
  while (true) {
    bool has_place;
    int64_t in_use = 0;
    {
      const MutexLock lock(mutex_);
      has_place = taken_ < options_.most;
      const bool first = taken_ == 0;
      if (has_place && (first || Charge(options_.context_bytes, &in_use))) {
        if (!first) context_bytes_ += options_.context_bytes;
        ++taken_;
        return std::make_unique<Place>(shared_from_this());
      }
    }
    if (has_place && !std::exchange(gave_back, true)) {
      give_back();
      continue;
    }
    if (IsEnding()) {
      if (AwaitReturn(until)) continue;
      return absl::UnavailableError(StrCat(
          options_.device, ": a worker process that was ended to make room has not ended for ",
          absl::FormatDuration(options_.patience), ": try again"));
    }
    if (end_one()) continue;
    if (!has_place) {
      return absl::UnavailableError(
          StrCat(options_.device, ": other tenants use all ", options_.most,
                 " worker processes that it may have at a time: try again when one of them has "
                 "freed its memory there, or ask the operator of the server for a larger "
                 "--gpu-workers"));
    }
    return ResourceExhausted(options_.device, ": one more worker process takes ",
                             options_.context_bytes, " bytes for its context, which with ", in_use,
                             " in use would exceed the memory limit of ", options_.memory_limit,
                             " bytes: try again when other tenants have freed memory there");
  }
}

bool WorkerPlaces::Charge(int64_t size, int64_t* in_use) {
  *in_use = options_.used->load();
  do {
    if (size > options_.memory_limit - *in_use) return false;
  } while (!options_.used->compare_exchange_weak(*in_use, *in_use + size));
  return true;
}

bool WorkerPlaces::IsEnding() const {
  const MutexLock lock(mutex_);
  return ending_ > 0;
}

// Until one that is being ended has; true: none is, or one has.
bool WorkerPlaces::AwaitReturn(std::chrono::steady_clock::time_point until) {
  ReleasableLock lock(mutex_);
  const int64_t before = taken_;
  while (ending_ > 0 && taken_ >= before) {
    if (returned_.wait_until(lock, until) == std::cv_status::timeout) return false;
  }
  return true;
}

void WorkerPlaces::Return(bool was_ending) {
  const MutexLock lock(mutex_);
  if (was_ending) --ending_;
  returned_.notify_all();
  if (--taken_ == 0) return;
  context_bytes_ -= options_.context_bytes;
  options_.used->fetch_sub(options_.context_bytes);
}

}  // namespace telegrad
