// A map of ranges by their begin; a range that is added is merged with those that it touches.
#include "server/data/byte_ranges.h"

#include <algorithm>
#include <iterator>

namespace telegrad {

bool ByteRanges::Contains(ByteRange range) const {
  if (range.bytes == 0) return true;
  auto it = ends_.upper_bound(range.offset);
  if (it == ends_.begin()) return false;
  return std::prev(it)->second >= range.offset + range.bytes;
}

bool ByteRanges::Overlaps(ByteRange range) const {
  const auto it = ends_.lower_bound(range.offset + range.bytes);  // the first one behind it
  return range.bytes > 0 && it != ends_.begin() && std::prev(it)->second > range.offset;
}

void ByteRanges::Add(ByteRange range) {
  if (range.bytes == 0) return;
  uint64_t begin = range.offset, end = range.offset + range.bytes;
  auto it = ends_.upper_bound(begin);
  if (it != ends_.begin() && std::prev(it)->second >= begin) --it;
  while (it != ends_.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    bytes_ -= it->second - it->first;
    it = ends_.erase(it);
  }
  ends_.emplace_hint(it, begin, end);
  bytes_ += end - begin;
}

size_t ByteRanges::SizeWith(ByteRange range) const {
  const auto next = ends_.lower_bound(range.offset);
  const bool before = next != ends_.begin() && std::prev(next)->second == range.offset;
  const bool after = next != ends_.end() && next->first == range.offset + range.bytes;
  return ends_.size() + 1 - (before ? 1 : 0) - (after ? 1 : 0);
}

std::vector<ByteRange> ByteRanges::Missing(uint64_t total) const {
  std::vector<ByteRange> missing;
  uint64_t at = 0;
  for (const auto& [begin, end] : ends_) {
    if (begin > at) missing.push_back({at, begin - at});
    at = end;
  }
  if (at < total) missing.push_back({at, total - at});
  return missing;
}

}  // namespace telegrad
