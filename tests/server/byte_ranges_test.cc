// Sets of byte ranges against a set of bytes.
#include "server/data/byte_ranges.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(ByteRanges, AgreeWithASetOfBytes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr uint64_t kTotal = 64;
  for (int round = 0; round < 200; ++round) {
    ByteRanges ranges;
    std::vector<bool> bytes(kTotal + 1, false);
    for (int i = 0; i < 20; ++i) {
      const uint64_t offset = random() % kTotal;
      const ByteRange range{offset, random() % std::min<uint64_t>(kTotal - offset + 1, 12)};
      bool contains = true, overlaps = false;
      for (uint64_t b = offset; b < offset + range.bytes; ++b) {
        contains = contains && bytes[b];
        overlaps = overlaps || bytes[b];
      }
      ASSERT_EQ(ranges.Contains(range), contains) << offset << " + " << range.bytes;
      ASSERT_EQ(ranges.Overlaps(range), overlaps);
      const size_t with = ranges.SizeWith(range);
      ranges.Add(range);
      if (!overlaps && range.bytes > 0) {
        ASSERT_EQ(ranges.size(), with);
      }
      for (uint64_t b = offset; b < offset + range.bytes; ++b) bytes[b] = true;
      ASSERT_EQ(ranges.bytes(),
                static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), true)));
      std::vector<bool> missing(kTotal + 1, true);
      for (const ByteRange& m : ranges.Missing(kTotal)) {
        for (uint64_t b = m.offset; b < m.offset + m.bytes; ++b) missing[b] = false;
      }
      missing[kTotal] = false;
      ASSERT_EQ(missing, bytes);
    }
  }
}

}  // namespace
}  // namespace telegrad
