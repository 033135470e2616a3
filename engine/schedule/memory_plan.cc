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

}  // namespace

int64_t PlanMemory(std::span<const Lifetime> lifetimes, std::span<Temporary> temporaries) {
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

}  // namespace telegrad
