// Histograms of durations: counts in buckets that are about a fifth of a decade wide, from a
// microsecond to a quarter of an hour. An observation changes two atomics.
//
// There is one for each value of a label, which are few: the methods of the table, the devices,
// the tenants in the directory. Clients cannot add any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class Histogram {
 public:
  // The largest duration of each bucket but the last, which has all others, in seconds.
  static std::span<const double> Bounds();
  static constexpr int kBuckets = 22;

  // One observation of a bucket that was traced, the last one.
  struct Exemplar {
    uint64_t trace_high = 0, trace_low = 0;  // 0 and 0: there is none
    double seconds = 0;
    double at = 0;  // since the epoch
  };
  using Exemplars = std::array<Exemplar, kBuckets>;

  struct Counts {
    std::array<int64_t, kBuckets> buckets{};  // each by itself
    double seconds = 0;                       // of all together
    int64_t total() const;
  };

  void Observe(int64_t ns);
  // The same of something that belongs to a trace.
  void ObserveTraced(int64_t ns, uint64_t trace_high, uint64_t trace_low);
  Counts Read() const;
  // Null: there are none.
  std::shared_ptr<const Exemplars> exemplars() const;

 private:
  std::array<std::atomic<int64_t>, kBuckets> buckets_{};
  std::atomic<int64_t> ns_{0};
  mutable Mutex mutex_;
  std::unique_ptr<Exemplars> exemplars_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
