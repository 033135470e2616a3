#include "engine/ir/fragment.h"

#include <algorithm>

namespace telegrad {
namespace {

constexpr FragmentRow kFragments[] = {
#define MMA(...)
#define FRAGMENT(unit, matrix, threads, elements) \
  {MatrixUnit::unit, #matrix[0], FragmentDigits(threads), FragmentDigits(elements)},
#include "engine/ir/mma.def"
#undef FRAGMENT
#undef MMA
};

}  // namespace

std::span<const FragmentRow> AllFragments() { return kFragments; }

const FragmentRow* FindFragment(MatrixUnit unit, char matrix) {
  const auto* const found = std::ranges::find_if(
      kFragments, [&](const FragmentRow& row) { return row.unit == unit && row.matrix == matrix; });
  return found == std::end(kFragments) ? nullptr : found;
}

}  // namespace telegrad
