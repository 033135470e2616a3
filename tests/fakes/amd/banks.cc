// Of the lanes of one cycle, the bank with the most different words says how many cycles it takes.
#include "tests/fakes/amd/banks.h"

#include <algorithm>
#include <array>

#include "tests/fakes/amd/code.h"

namespace fakeamd {
namespace {

constexpr uint32_t kBanks = 32;
constexpr uint32_t kWordBytes = 4;

// The lane that is at this position where lanes of one cycle are next to each other.
uint32_t LaneAt(uint32_t position, LaneOrder order) {
  if (order == LaneOrder::kNeighbours) return position;
  constexpr uint32_t kSecondFour[] = {20, 16, 28, 24};
  const uint32_t half = position / 32 * 32, group = position % 32 / 8, in_group = position % 8;
  return half + (in_group < 4 ? 4 * group + in_group : kSecondFour[group] + in_group - 4);
}

}  // namespace

uint64_t BankConflicts(const uint32_t* addresses, uint32_t offset, uint64_t active, uint32_t bytes,
                       LaneOrder order) {
  const uint32_t words = (bytes + kWordBytes - 1) / kWordBytes;
  const uint32_t at_once = words == 1 ? kBanks : words == 2 ? kBanks / 2 : kBanks / 4;
  uint64_t conflicts = 0;
  for (uint32_t first = 0; first < kMaxLanes; first += at_once) {
    std::array<uint32_t, kBanks> accessed = {};
    auto end = accessed.begin();
    for (uint32_t position = first; position < first + at_once; ++position) {
      const uint32_t lane = LaneAt(position, order);
      if ((active >> lane & 1) == 0) continue;
      const uint32_t word = (addresses[lane] + offset) / kWordBytes;
      for (uint32_t k = 0; k < words; ++k) *end++ = word + k;
    }
    std::sort(accessed.begin(), end);
    end = std::unique(accessed.begin(), end);
    std::array<uint32_t, kBanks> used = {};
    for (auto word = accessed.begin(); word != end; ++word) ++used[*word % kBanks];
    const uint32_t most = *std::max_element(used.begin(), used.end());
    if (most > 1) conflicts += most - 1;
  }
  return conflicts;
}

}  // namespace fakeamd
