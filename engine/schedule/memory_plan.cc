#include "engine/schedule/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace telegrad {
namespace {

int64_t RoundUp(int64_t n) {
  return (n + kTemporaryAlignment - 1) / kTemporaryAlignment * kTemporaryAlignment;
}

// The free parts of an arena that grows at its end, by offset.
class Arena {
 public:
  int64_t Take(int64_t bytes) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      const auto [offset, length] = *it;
      free_.erase(it);
      if (length > bytes) free_.emplace(offset + bytes, length - bytes);
      return offset;
    }
    const int64_t offset = end_;
    end_ += bytes;
    return offset;
  }

  void Give(int64_t offset, int64_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        free_.erase(before);
      }
    }
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      free_.erase(next);
    }
    free_.emplace(offset, bytes);
  }

  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> free_;
  int64_t end_ = 0;
};

// By birth, each at the first place that is free. Returns the bytes of all.
int64_t ByBirth(std::span<const Lifetime> lifetimes, std::span<Temporary> temporaries) {
  std::vector<size_t> by_birth(lifetimes.size());
  std::iota(by_birth.begin(), by_birth.end(), 0);
  std::ranges::stable_sort(by_birth, {}, [&](size_t i) { return lifetimes[i].first; });

  Arena arena;
  std::multimap<int64_t, size_t> alive;  // by last use
  for (size_t i : by_birth) {
    while (!alive.empty() && alive.begin()->first < lifetimes[i].first) {
      const Temporary& dead = temporaries[alive.begin()->second];
      arena.Give(dead.offset, RoundUp(dead.bytes));
      alive.erase(alive.begin());
    }
    temporaries[i].offset = arena.Take(RoundUp(temporaries[i].bytes));
    alive.emplace(lifetimes[i].last, i);
  }
  return arena.end();
}

// The largest first, each at the first place where nothing lies that is alive with it. Usually
// close to the least that is possible, for steps that grow with the square of their number.
int64_t BySize(std::span<const Lifetime> lifetimes, std::span<const Temporary> temporaries,
               std::vector<int64_t>* offsets) {
  std::vector<size_t> by_size(lifetimes.size()), placed;  // by offset
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size, std::ranges::greater{},
                           [&](size_t i) { return temporaries[i].bytes; });
  offsets->assign(lifetimes.size(), 0);
  int64_t end = 0;
  for (const size_t i : by_size) {
    const int64_t bytes = RoundUp(temporaries[i].bytes);
    int64_t at = 0;
    for (const size_t j : placed) {
      if (lifetimes[j].last < lifetimes[i].first || lifetimes[i].last < lifetimes[j].first)
        continue;
      if (at + bytes <= (*offsets)[j]) break;
      at = std::max(at, (*offsets)[j] + RoundUp(temporaries[j].bytes));
    }
    (*offsets)[i] = at;
    placed.insert(std::ranges::upper_bound(placed, at, {}, [&](size_t j) { return (*offsets)[j]; }),
                  i);
    end = std::max(end, at + bytes);
  }
  return end;
}

}  // namespace

int64_t PlanMemory(std::span<const Lifetime> lifetimes, std::span<Temporary> temporaries) {
  constexpr size_t kMostBySize = 2048;
  const int64_t end = ByBirth(lifetimes, temporaries);
  if (lifetimes.size() > kMostBySize) return end;
  std::vector<int64_t> offsets;
  const int64_t less = BySize(lifetimes, temporaries, &offsets);
  if (less >= end) return end;
  for (size_t i = 0; i < offsets.size(); ++i) temporaries[i].offset = offsets[i];
  return less;
}

}  // namespace telegrad
