#include "engine/lowering/tile_layout.h"

#include <algorithm>

#include "engine/ir/fragment.h"
#include "engine/ir/product_tile.h"

namespace telegrad {
namespace {

std::vector<TileDigit> DigitsOf(std::span<const FragmentDigit> digits, char rows) {
  std::vector<TileDigit> out;
  for (const FragmentDigit& digit : digits) {
    out.push_back({digit.axis == rows, digit.size, digit.stride});
  }
  return out;
}

// Whether c, whose axis `reduced` the next product reduces, is its operand.
bool IsOperand(const FragmentRow& c, char reduced, const FragmentRow& operand) {
  const auto same = [&](std::span<const FragmentDigit> x, std::span<const FragmentDigit> y) {
    return std::ranges::equal(x, y, [&](const FragmentDigit& a, const FragmentDigit& b) {
      const char axis = a.axis == reduced ? 'k' : a.axis;
      return axis == b.axis && a.size == b.size && a.stride == b.stride;
    });
  };
  return same(c.threads.all(), operand.threads.all()) &&
         same(c.elements.all(), operand.elements.all());
}

}  // namespace

int64_t TileLayout::size() const {
  int64_t n = 1;
  for (const TileDigit& digit : elements) n *= digit.size;
  return n;
}

int64_t TileLayout::rows() const {
  int64_t n = 1;
  for (const TileDigit& digit : elements) n *= digit.row ? digit.size : 1;
  return n;
}

TileLayout LayoutWithoutInstruction(const Target& target) {
  const int64_t side = WarpElements(target), warp = target.warp;
  return {.tile_rows = side * side,
          .columns = warp / side * side,
          .threads = {{false, warp / side, side}, {true, side, side}},
          .elements = {{false, side, 1}, {true, side, 1}}};
}

std::optional<TileInstruction> TileInstructionFor(const Target& target, DType dtype) {
  const std::optional<MmaKind> kind = SquareMmaFor(target.matrix, dtype);
  if (!kind) return std::nullopt;
  const MmaInfo& mma = AllMmas()[static_cast<size_t>(*kind)];
  const FragmentRow* const c = FindFragment(target.matrix, 'c');
  if (mma.async || mma.threads != target.warp || c == nullptr) return std::nullopt;
  for (const bool turned : {false, true}) {
    const FragmentRow* const operand = FindFragment(target.matrix, turned ? 'b' : 'a');
    if (operand == nullptr || !IsOperand(*c, turned ? 'm' : 'n', *operand)) continue;
    const char rows = turned ? 'n' : 'm';
    const TileLayout layout{.tile_rows = mma.m,
                            .columns = mma.n,
                            .threads = DigitsOf(c->threads.all(), rows),
                            .elements = DigitsOf(c->elements.all(), rows)};
    if (layout.size() == mma.c_size()) return TileInstruction{*kind, turned, layout};
  }
  return std::nullopt;
}

}  // namespace telegrad
