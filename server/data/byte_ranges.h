// A set of bytes of a transfer, as ascending ranges that do not touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace telegrad {

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// offset + bytes of what it is asked about does not overflow.
class ByteRanges {
 public:
  bool Contains(ByteRange range) const;
  bool Overlaps(ByteRange range) const;
  void Add(ByteRange range);
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return ends_.size(); }  // of ranges
  // How many ranges there would be with one more that does not overlap.
  size_t SizeWith(ByteRange range) const;
  // What [0, total) has besides.
  std::vector<ByteRange> Missing(uint64_t total) const;

 private:
  std::map<uint64_t, uint64_t> ends_;  // by where a range begins
  uint64_t bytes_ = 0;
};

}  // namespace telegrad
