// Lanes of a warp exchange values by SHUFFLE: neighbours, or those that lie apart by as many lanes
// as have other results. What is left meets in local memory:
//
//   barrier                 only in a loop: the memory is free once all have read it
//   memory[rest, kept] = value      by the first thread of those that have exchanged theirs
//   barrier
//   memory[0, kept] + memory[1, kept] + ...
//
// Where that would be many values, as on targets without warps, whose threads exchange none, it is
// done in two steps: each thread reduces the values of a group of neighbours, and the groups meet
// in other memory. 256 threads then reduce 16 values twice. In a loop this needs no barrier more:
// all have read a memory before the barrier behind which they store to the other one.
#include "engine/lowering/workgroup_reduce.h"

#include <algorithm>
#include <array>
#include <functional>
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

constexpr int64_t kMostInARow = 32;  // values that a thread reduces one after the other

// The number of neighbours, a divisor of `values`, for which two steps have the fewest values; 1:
// one step is enough, or two have hardly fewer.
int64_t GroupOf(int64_t values) {
  int64_t best = 1, least = values <= kMostInARow ? 0 : values / 2;
  for (int64_t group = 2; group < values && least > 0; ++group) {
    const int64_t both = group + values / group;
    if (values % group != 0 || both >= least) continue;
    best = group;
    least = both;
  }
  return best;
}

// Local memory in which threads of the same column exchange values.
class Exchange {
 public:
  Exchange(Rewriter& b, const WorkgroupPlace& place, const std::vector<UOp>& own,
           const std::vector<UOp>& kept)
      : b_(b),
        place_(place),
        part_(RowMajor(b, own)),
        column_(RowMajor(b, kept)),
        columns_(CountOf(kept)) {}

  // Each `threads` neighbours have one of the `values`; the fold of the `group` neighbours among
  // which a thread's own is, behind a barrier. `wait`: threads may still read the memory.
  UOp Fold(UOp value, int64_t threads, int64_t values, int64_t group, bool wait,
           const std::function<UOp(UOp, UOp)>& fold) {
    Graph& g = *b_.graph();
    const int64_t width = value.shape().empty() ? 1 : value.shape()[0];
    const Staging s{.dtype = value.dtype(),
                    .space = AddressSpace::kLocal,
                    .slot = (*place_.next_slot)++,
                    .layout = {{{.size = values}, {.size = columns_}, {.size = width}}}};
    const auto at = [&](UOp row) {
      const UOp first = s.layout.At(b_, std::array{row, column_, g.Index(0)});
      if (value.shape().empty()) return first;
      return g.Make(Op::kAdd, {first, g.Make(Op::kIota, DType::kInt64, {}, {width})});
    };
    const UOp memory = StagedMemory(g, s);
    UOp free = memory;
    if (wait) free = g.Make(Op::kAfter, {memory, WorkgroupBarrier(g, place_.loops)});
    std::vector<UOp> target{free, at(b_.Make(Op::kFloorDiv, {part_, g.Index(threads)}))};
    if (threads > 1) {
      target.push_back(
          b_.Make(Op::kCmpEq, {b_.Make(Op::kFloorMod, {part_, g.Index(threads)}), g.Index(0)}));
    }
    const UOp stored = g.Make(Op::kStore, {g.Make(Op::kIndex, DType::kVoid, target), value});
    const UOp full = g.Make(Op::kAfter, {memory, WorkgroupBarrier(g, std::span(&stored, 1))});
    const UOp begin = b_.Make(
        Op::kMul, {b_.Make(Op::kFloorDiv, {part_, g.Index(threads * group)}), g.Index(group)});
    UOp result;
    for (int64_t i = 0; i < group; ++i) {
      const UOp row = group == values ? g.Index(i) : b_.Make(Op::kAdd, {begin, g.Index(i)});
      const UOp x = g.Make(Op::kLoad, {g.Make(Op::kIndex, {full, at(row)})});
      result = i == 0 ? x : fold(result, x);
    }
    return result;
  }

 private:
  Rewriter& b_;
  const WorkgroupPlace& place_;
  const UOp part_, column_;
  const int64_t columns_;
};

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
  const UOp thread = RowMajor(b, place.threads);
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
  const int64_t values = CountOf(own) / lanes;
  if (values == 1 || !value.valid()) return value;

  Exchange exchange(b, place, own, kept);
  const int64_t group = GroupOf(values);
  if (group == 1) return exchange.Fold(value, lanes, values, values, !place.loops.empty(), fold);
  value = exchange.Fold(value, lanes, values, group, false, fold);
  if (!value.valid()) return value;
  const int64_t groups = values / group;
  return exchange.Fold(value, lanes * group, groups, groups, false, fold);
}

}  // namespace telegrad
