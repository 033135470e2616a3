// Free ranges in two maps: by address, to merge neighbours, and by size, to find the best fit.
#include "devices/hcq/range_heap.h"

#include <iterator>

namespace telegrad::hcq {

void RangeHeap::Insert(uint64_t base, uint64_t bytes) {
  ranges_.emplace(base, bytes);
  by_size_.emplace(bytes, base);
  free_ += bytes;
}

void RangeHeap::Erase(std::map<uint64_t, uint64_t>::iterator range) {
  free_ -= range->second;
  by_size_.erase({range->second, range->first});
  ranges_.erase(range);
}

std::optional<uint64_t> RangeHeap::Take(uint64_t bytes, uint64_t alignment) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const auto [size, base] = *it;
    const uint64_t at = (base + alignment - 1) & ~(alignment - 1);
    if (at < base || at - base > size - bytes) continue;
    Erase(ranges_.find(base));
    if (at > base) Insert(base, at - base);
    if (const uint64_t end = at + bytes; end < base + size) Insert(end, base + size - end);
    return at;
  }
  return std::nullopt;
}

void RangeHeap::Give(uint64_t base, uint64_t bytes) {
  if (bytes == 0) return;
  auto next = ranges_.lower_bound(base);
  if (next != ranges_.end() && base + bytes == next->first) {
    bytes += next->second;
    const auto merged = next++;
    Erase(merged);
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      base = before->first;
      bytes += before->second;
      Erase(before);
    }
  }
  Insert(base, bytes);
}

}  // namespace telegrad::hcq
