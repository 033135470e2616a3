// Of the lanes of one cycle, the bank with the most different words says how many cycles it takes.
#include "tests/fakes/cuda/ptx/banks.h"

#include <algorithm>
#include <array>

#include "tests/fakes/cuda/ptx/code.h"

namespace fakecuda {
namespace {

constexpr uint32_t kBanks = 32;
constexpr uint32_t kWordBytes = 4;
constexpr uint64_t kSectorBytes = 32;
constexpr size_t kMostSectors = 2;  // of an access of at most 16 bytes

}  // namespace

uint64_t BankConflicts(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes) {
  const uint32_t words = (bytes + kWordBytes - 1) / kWordBytes;
  const int at_once = words == 1 ? kLanes : words == 2 ? kLanes / 2 : kLanes / 4;
  uint64_t conflicts = 0;
  for (int first = 0; first < kLanes; first += at_once) {
    std::array<uint64_t, kBanks> accessed = {};
    auto end = accessed.begin();
    for (int lane = first; lane < first + at_once; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      const uint64_t word = (addresses[lane] + static_cast<uint64_t>(offset)) / kWordBytes;
      for (uint32_t k = 0; k < words; ++k) *end++ = word + k;
    }
    std::sort(accessed.begin(), end);
    end = std::unique(accessed.begin(), end);
    std::array<uint64_t, kBanks> used = {};
    for (auto word = accessed.begin(); word != end; ++word) ++used[*word % kBanks];
    const uint64_t most = *std::max_element(used.begin(), used.end());
    if (most > 1) conflicts += most - 1;
  }
  return conflicts;
}

uint64_t Sectors(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes) {
  std::array<uint64_t, kMostSectors * kLanes> touched = {};
  auto end = touched.begin();
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const uint64_t begin = addresses[lane] + static_cast<uint64_t>(offset);
    const uint64_t last = (begin + bytes - 1) / kSectorBytes;
    for (uint64_t sector = begin / kSectorBytes; sector <= last; ++sector) *end++ = sector;
  }
  std::sort(touched.begin(), end);
  return static_cast<uint64_t>(std::unique(touched.begin(), end) - touched.begin());
}

}  // namespace fakecuda
