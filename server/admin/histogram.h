// How long something took, each time: counts in buckets that are as wide as a fifth of a decade or
// so, from a microsecond to a quarter of an hour. Whoever observes touches two atomics.
//
// There is one for each of few values of a label: a method of the table, a device, a tenant that
// the directory knows. No client chooses how many there are.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

namespace telegrad {

// Thread-safe.
class Histogram {
 public:
  // The largest duration of each bucket but the last, which has all others, in seconds.
  static std::span<const double> Bounds();
  static constexpr int kBuckets = 22;

  struct Counts {
    std::array<int64_t, kBuckets> buckets{};  // each by itself
    double seconds = 0;                       // of all together
    int64_t total() const;
  };

  void Observe(int64_t ns);
  Counts Read() const;

 private:
  std::array<std::atomic<int64_t>, kBuckets> buckets_{};
  std::atomic<int64_t> ns_{0};
};

}  // namespace telegrad
