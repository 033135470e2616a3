// The bounds of the buckets, and exemplars: the trace of the last traced observation of each
// bucket.
#include "server/admin/histogram.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace telegrad {
namespace {

// In seconds. A whole number of nanoseconds is divided by 1e9, and not multiplied by 1e-9, so that
// it is rounded to what is written here. Finer where most things are, between 10 us and 10 s.
constexpr double kBounds[] = {1e-6, 3e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3,
                              1e-2, 2e-2, 5e-2, 0.1,  0.2,  0.5,  1,    3,    10,   100};
static_assert(std::size(kBounds) + 1 == Histogram::kBuckets);

size_t BucketOf(int64_t ns) {
  const auto* const bound = std::ranges::lower_bound(kBounds, static_cast<double>(ns) / 1e9);
  return static_cast<size_t>(bound - kBounds);
}

}  // namespace

std::span<const double> Histogram::Bounds() { return kBounds; }

int64_t Histogram::Counts::total() const {
  return std::accumulate(buckets.begin(), buckets.end(), int64_t{0});
}

void Histogram::Observe(int64_t ns) {
  ns = std::max<int64_t>(ns, 0);
  buckets_[BucketOf(ns)].fetch_add(1, std::memory_order_relaxed);
  ns_.fetch_add(ns, std::memory_order_relaxed);
}

void Histogram::ObserveTraced(int64_t ns, uint64_t trace_high, uint64_t trace_low) {
  ns = std::max<int64_t>(ns, 0);
  Observe(ns);
  const double at =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const MutexLock lock(mutex_);
  if (exemplars_ == nullptr) exemplars_ = std::make_unique<Exemplars>();
  (*exemplars_)[BucketOf(ns)] = {trace_high, trace_low, static_cast<double>(ns) / 1e9, at};
}

std::shared_ptr<const Histogram::Exemplars> Histogram::exemplars() const {
  const MutexLock lock(mutex_);
  return exemplars_ == nullptr ? nullptr : std::make_shared<const Exemplars>(*exemplars_);
}

Histogram::Counts Histogram::Read() const {
  Counts out;
  for (size_t i = 0; i < kBuckets; ++i) {
    out.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
  }
  out.seconds = static_cast<double>(ns_.load(std::memory_order_relaxed)) / 1e9;
  return out;
}

}  // namespace telegrad
