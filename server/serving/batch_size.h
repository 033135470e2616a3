// How many of the waiting rows a batch takes: as many as have the best rate on that device. Large
// batches are faster on a GPU; on a CPU, a batch whose values do not fit in its caches is slower
// than several small ones, and 9 rows that are padded to 16 pay for 7 rows of nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace telegrad {

// The device time of one thing that runs again and again. Thread-safe, but for losing one of two
// times that come at once.
class LearnedTime {
 public:
  struct Terms {
    int skipped = 0;  // of the first times: pages are cold, and the second run packs weights
    int first = 1;    // of the next ones: the shortest of them is the first that is known
    // 0: of late; a shorter time counts for more than a longer one, which may be due to other work.
    // Else the mean of about so long. It is for comparing things of which only one runs, each with
    // what its own runs suffer from others; and moments in which all would be slow must not tell
    // against that one.
    int64_t span_ns = 0;
  };

  explicit LearnedTime(const Terms& terms) : terms_(terms) {}
  void Add(int64_t ns, int64_t now_ns);
  // 0: unknown
  int64_t ns() const { return ready_.load(std::memory_order_relaxed) ? mean_ns_.load() : 0; }
  // Whether the last was added as long ago as that: the next one counts for half.
  bool IsAged(int64_t now_ns) const;
  // When the last was added, as the clock has it; 0: never.
  int64_t learned_ns() const { return learned_ns_.load(std::memory_order_relaxed); }
  // Whether it is worth learning again: after seconds, then after twice as long each time, since
  // what was learned first may have been disturbed; in the end after five minutes, but so rarely
  // that it takes little of the device's time and that few of a hundred requests wait for it.
  bool IsOld(int64_t now_ns) const;

 private:
  const Terms terms_;
  std::atomic<int> count_{0};  // of those that were added; no more than matter
  std::atomic<bool> ready_{false};
  std::atomic<int64_t> mean_ns_{0}, learned_ns_{0}, known_since_ns_{0};
};

// A size for which a model is compiled.
struct BatchSize {
  int64_t rows = 0;
  bool made = false;   // compiled
  int64_t ns = 0;      // of a batch; 0: unknown
  bool stale = false;  // that is old
  bool aged = false;   // that is not of the last seconds
  bool usual = false;  // by its rate, it was the one that was chosen last
};

struct BatchChoice {
  size_t requests = 0;  // to be taken
  int64_t wanted = 0;   // a size that is worth compiling for later batches; 0: none
  int64_t usual = 0;    // the size, if it was chosen by its rate; 0: it is tried
};

// Of requests that wait, at least one, with so many rows each: how many of the first ones. The
// sizes ascend; the last one has room for the first request. Sizes that might have the best rate
// are tried, so that their times become known; so is a size that seems better than the usual one,
// but was measured when everything may have been faster.
BatchChoice ChooseBatch(std::span<const BatchSize> sizes, std::span<const int64_t> rows);

// Whether so few rows wait for more while the device runs a batch: a batch that is ready behind the
// one that runs takes in nobody who comes meanwhile. `usual` rows have the best rate, or 0; `ns` is
// the time of a batch. Not for short ones: the device stands still while the next one is gathered.
bool IsTooEarly(int64_t rows, int64_t usual, int64_t ns);

}  // namespace telegrad
