// With r = c * r1 + r2 the rules make r / c to r1 and r % c to r2. The smallest divisor comes
// first: r1 is then divided by what the others have more. Quantized weights are an example: a scale
// for every 32 elements, two elements in a byte.
#include "engine/lowering/split_ranges.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup_matmul.h"

namespace telegrad {
namespace {

constexpr int kMaxSplits = 8;

bool HasProducts(UOp sink) {
  const Graph& g = *sink.graph();
  return std::ranges::any_of(PostOrder(sink), [&](uint32_t id) {
    return g.op(id) == Op::kReduce && g.at(id).src(0).is(Op::kMul);
  });
}

// The range that is taken apart, and by what; 0: none. A divisor is a multiple of `lanes`, or the
// range is a loop around a sum of products, whose tiles read neighbours together: the pixels of a
// transposed convolution, of which each few read one of the input.
std::pair<UOp, int64_t> FindDivided(UOp sink, int64_t lanes) {
  std::pair<UOp, int64_t> best{{}, 0};
  const std::vector<uint32_t> order = PostOrder(sink);
  const bool products = HasProducts(sink);
  // What an AFTER waits for is a loop as it is.
  absl::flat_hash_set<uint32_t> waited;
  for (uint32_t id : order) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kAfter)) waited.insert(u.src_ids().begin() + 1, u.src_ids().end());
  }
  for (uint32_t id : order) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kFloorDiv) && !u.is(Op::kFloorMod)) continue;
    const UOp range = u.src(0);
    if (!range.is(Op::kRange) || waited.contains(range.id()) || !range.src(0).is_const() ||
        !u.src(1).is_const())
      continue;
    const int64_t size = SizeOf(range), c = u.src(1).const_word();
    if (c <= 1 || c >= size || size % c != 0) continue;
    if (c % lanes != 0 && !(products && IsType(range, AxisType::kLoop))) continue;
    if (best.second == 0 || (range == best.first && c < best.second)) best = {range, c};
  }
  return best;
}

UOp SplitDivided(Rewriter& b, UOp sink, int64_t lanes) {
  Graph& g = *b.graph();
  for (int i = 0; i < kMaxSplits && sink.valid(); ++i) {
    const auto [range, c] = FindDivided(sink, lanes);
    if (c == 0) break;
    int64_t next = 0;
    int ranges = 0;
    for (uint32_t id : PostOrder(sink)) {
      if (g.op(id) != Op::kRange) continue;
      next = std::max(next, g.at(id).range_id() + 1);
      ++ranges;
    }
    if (ranges > kMaxRanges / 2) break;  // the moves need some, too
    const auto type = range.axis_type();
    const UOp outer = g.Range(next, type, g.Index(SizeOf(range) / c));
    const UOp inner = g.Range(next + 1, type, g.Index(c));
    const UOp value = b.Make(Op::kAdd, {b.Make(Op::kMul, {outer, g.Index(c)}), inner});
    sink = Substitute(b, sink, {{range.id(), {value, {outer, inner}}}});
  }
  return sink;
}

bool IsProduct(UOp sink, const Target& target) {
  const std::optional<KernelShape> shape = ReadShape(sink, target);
  return shape && FindProduct(*shape);
}

}  // namespace

// Threads are no lanes: each has an index of its own. But a product of groups, whose number is a
// part of a column's, becomes one of a batch.
UOp SplitRanges(Rewriter& b, UOp sink, const Target& target) {
  if (target.has(ParallelLevel::kLanes)) {
    return SplitDivided(b, sink, std::max<int64_t>(2, target.lanes()));
  }
  if (!target.stages || FindDivided(sink, 1).second == 0 || IsProduct(sink, target)) return sink;
  const UOp split = SplitDivided(b, sink, 1);
  return split.valid() && IsProduct(split, target) ? split : sink;
}

}  // namespace telegrad
