// How many of the waiting rows a batch takes: as many as have the best rate on that device. Large
// batches are faster on a GPU; on a CPU, a batch whose values do not fit in its caches is slower
// than several small ones, and 9 rows that are padded to 16 pay for 7 rows of nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace telegrad {

// The device time of one thing that runs again and again. A shorter time counts for more than a
// longer one, which may be due to other work. Thread-safe, but for losing one of two times that
// come at once.
class LearnedTime {
 public:
  // The first times tell nothing: pages are cold, and the second run packs weights.
  explicit LearnedTime(int skipped) : skipped_(skipped) {}
  void Add(int64_t ns, int64_t now_ns);
  int64_t ns() const { return mean_ns_.load(std::memory_order_relaxed); }  // 0: unknown
  // When the last was added, as the clock has it; 0: never.
  int64_t learned_ns() const { return learned_ns_.load(std::memory_order_relaxed); }
  // Whether it is worth learning again: after five minutes, but so rarely that it takes little of
  // the device's time and that few of a hundred requests wait for it.
  bool IsOld(int64_t now_ns) const;

 private:
  std::atomic<int> skipped_;
  std::atomic<int64_t> mean_ns_{0}, learned_ns_{0};
};

// A size for which a model is compiled.
struct BatchSize {
  int64_t rows = 0;
  bool made = false;   // compiled
  int64_t ns = 0;      // of a batch; 0: unknown
  bool stale = false;  // that is old
  bool usual = false;  // by its rate, it was the one that was chosen last
};

struct BatchChoice {
  size_t requests = 0;  // to be taken
  int64_t wanted = 0;   // a size that is worth compiling for later batches; 0: none
  int64_t usual = 0;    // the size, if it was chosen by its rate; 0: it is tried
};

// Of requests that wait, at least one, with so many rows each: how many of the first ones. The
// sizes ascend; the last one has room for the first request. Sizes that might have the best rate
// are tried, so that their times become known.
BatchChoice ChooseBatch(std::span<const BatchSize> sizes, std::span<const int64_t> rows);

}  // namespace telegrad
