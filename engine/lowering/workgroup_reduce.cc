// Lanes of a warp exchange values by SHUFFLE: neighbours, or those that lie apart by as many lanes
// as have other results. What is left meets in local memory:
//
//   barrier                 only in a loop: the memory is free once all have read it
//   memory[rest, kept] = value      by the first thread of those that have exchanged theirs
//   barrier
//   memory[0, kept] + memory[1, kept] + ...
#include "engine/lowering/workgroup_reduce.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/lowering/ranges.h"
#include "engine/lowering/staging.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

int64_t CountOf(const std::vector<UOp>& ranges) {
  int64_t count = 1;
  for (UOp range : ranges) count *= SizeOf(range);
  return count;
}

}  // namespace

UOp BarrierOf(Graph& g, Scope scope, std::span<const UOp> before) {
  const int64_t arg[] = {static_cast<int64_t>(scope)};
  return g.Make(Op::kBarrier, DType::kVoid, before, arg);
}

UOp WorkgroupBarrier(Graph& g, std::span<const UOp> before) {
  return BarrierOf(g, Scope::kWorkgroup, before);
}

UOp ReduceThreads(Rewriter& b, UOp value, const std::vector<UOp>& folded,
                  const WorkgroupPlace& place, const std::function<UOp(UOp, UOp)>& fold) {
  Graph& g = *b.graph();
  const auto is_own = [&](UOp range) { return std::ranges::find(folded, range) != folded.end(); };
  std::vector<UOp> own, kept;  // in the order of the threads
  for (UOp range : place.threads) (is_own(range) ? own : kept).push_back(range);
  // Threads that are reduced, each so many numbers from the next.
  int64_t apart = 1, reduced = 1;
  auto range = place.threads.rbegin();
  for (; range != place.threads.rend() && !is_own(*range); ++range) apart *= SizeOf(*range);
  for (; range != place.threads.rend() && is_own(*range); ++range) reduced *= SizeOf(*range);
  const UOp thread = RowMajor(b, place.threads), part = RowMajor(b, own);
  const UOp column = RowMajor(b, kept);
  const int64_t columns = CountOf(kept);
  // Only whole warps exchange, and as many of their lanes as the bits of a number reach.
  const int64_t bits = place.warp & -place.warp;
  const bool whole = CountOf(place.threads) % place.warp == 0 && bits % apart == 0;
  const int64_t common = whole ? std::gcd(reduced, bits / apart) : 1;
  const int64_t lanes = common & -common;
  const UOp lane = b.Make(Op::kFloorMod, {thread, g.Index(place.warp)});
  for (int64_t bit = lanes / 2; bit > 0 && value.valid(); bit /= 2) {
    const UOp other = b.Make(Op::kXor, {lane, g.Index(bit * apart)});
    value = fold(value, g.Make(Op::kShuffle, {value, other}));
  }
  const int64_t rest = CountOf(own) / lanes;
  if (rest == 1 || !value.valid()) return value;

  const int64_t width = value.shape().empty() ? 1 : value.shape()[0];
  const Staging s{.dtype = value.dtype(),
                  .space = AddressSpace::kLocal,
                  .slot = place.slot,
                  .layout = {{{.size = rest}, {.size = columns}, {.size = width}}}};
  const auto at = [&](UOp row) {
    const UOp first = s.layout.At(b, std::array{row, column, g.Index(0)});
    if (value.shape().empty()) return first;
    return g.Make(Op::kAdd, {first, g.Make(Op::kIota, DType::kInt64, {}, {width})});
  };
  const UOp memory = StagedMemory(g, s);
  UOp free = memory;
  if (!place.loops.empty()) {
    free = g.Make(Op::kAfter, {memory, WorkgroupBarrier(g, place.loops)});
  }
  std::vector<UOp> target{free, at(b.Make(Op::kFloorDiv, {part, g.Index(lanes)}))};
  if (lanes > 1) {
    target.push_back(
        b.Make(Op::kCmpEq, {b.Make(Op::kFloorMod, {part, g.Index(lanes)}), g.Index(0)}));
  }
  const UOp stored = g.Make(Op::kStore, {g.Make(Op::kIndex, DType::kVoid, target), value});
  const UOp full = g.Make(Op::kAfter, {memory, WorkgroupBarrier(g, std::span(&stored, 1))});
  UOp result;
  for (int64_t i = 0; i < rest; ++i) {
    const UOp x = g.Make(Op::kLoad, {g.Make(Op::kIndex, {full, at(g.Index(i))})});
    result = i == 0 ? x : fold(result, x);
  }
  return result;
}

}  // namespace telegrad
