// Allocates ranges of numbers, such as addresses, from one large range: best fit; free neighbours
// are merged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace telegrad::hcq {

class RangeHeap {
 public:
  // Empty: nothing can be taken.
  RangeHeap() = default;
  RangeHeap(uint64_t base, uint64_t bytes) { Give(base, bytes); }

  // `bytes` above 0 at a multiple of `alignment`, a power of two; nullopt: none is free.
  std::optional<uint64_t> Take(uint64_t bytes, uint64_t alignment);
  // What was taken, or a further range. It overlaps nothing that is free.
  void Give(uint64_t base, uint64_t bytes);

  uint64_t free() const { return free_; }

 private:
  void Insert(uint64_t base, uint64_t bytes);
  void Erase(std::map<uint64_t, uint64_t>::iterator range);

  std::map<uint64_t, uint64_t> ranges_;              // base: bytes
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // bytes, base
  uint64_t free_ = 0;
};

}  // namespace telegrad::hcq
