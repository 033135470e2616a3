#include "engine/lowering/copied_operations.h"

#include <algorithm>
#include <bit>

#include "engine/lowering/tile_cost.h"

namespace telegrad {
namespace {

constexpr size_t kMostPlaces = 1 << 10;

double AllCopies(const std::vector<int64_t>& copies, RangeSet set) {
  double all = 1;
  for (; set != 0; set &= set - 1) {
    all *= static_cast<double>(copies[static_cast<size_t>(std::countr_zero(set))]);
  }
  return all;
}

// How many of the copies of an access are at different places.
double Places(const MemoryAccess& a, const std::vector<int64_t>& copies,
              const std::vector<int64_t>& lanes) {
  std::vector<int64_t> places = {0};
  for (RangeSet set = a.ranges; set != 0; set &= set - 1) {
    const auto r = static_cast<size_t>(std::countr_zero(set));
    const size_t known = places.size();
    if (a.stride[r] == kIrregular || known * static_cast<size_t>(copies[r]) > kMostPlaces) {
      return AllCopies(copies, a.ranges);
    }
    for (int64_t copy = 1; copy < copies[r]; ++copy) {
      for (size_t i = 0; i < known; ++i) {
        places.push_back(places[i] + copy * lanes[r] * a.stride[r]);
      }
    }
  }
  std::ranges::sort(places);
  return static_cast<double>(std::ranges::unique(places).begin() - places.begin());
}

// How many loads make one vector, at most: one for each lane where these lie far apart in memory.
int64_t Gathered(const Work& work, const std::vector<int64_t>& lanes) {
  int64_t loads = 1;
  for (const MemoryAccess& a : work.accesses) {
    for (RangeSet set = a.ranges; set != 0; set &= set - 1) {
      const auto r = static_cast<size_t>(std::countr_zero(set));
      const int64_t step = a.stride[r];
      if (a.store || lanes[r] == 1 || step == 0 || step == 1 || step == -1) continue;
      loads = std::max(loads, step > 1 && step <= kMaxStride ? step : lanes[r]);
    }
  }
  return loads;
}

}  // namespace

double CopiedOperations(const Work& work, const std::vector<int64_t>& copies,
                        const std::vector<int64_t>& lanes) {
  double operations = work.operations.empty() ? AllCopies(copies, work.all) : 0;
  for (const Work::Operation& o : work.operations) {
    double made = AllCopies(copies, o.ranges);
    for (const MemoryAccess& a : work.accesses) {
      if (!a.store && a.ranges == o.ranges) made = std::min(made, Places(a, copies, lanes));
    }
    operations += made;
  }
  return operations * static_cast<double>(Gathered(work, lanes));
}

}  // namespace telegrad
