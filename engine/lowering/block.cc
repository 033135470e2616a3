// The accumulators of all kept iterations inside of the block's loop are a BUFFER. It is filled
// with the reduction's identity, added to in each block, and read where the REDUCE was:
//
//   acc     = AFTER(BUFFER, outside...)
//   init    = END(STORE(acc[u'], identity), u')
//   inside  = AFTER(acc, init, block)
//   blocks  = END(STORE(inside[u"], inside[u"] + REDUCE(body with u" for u, rest)), block, u")
//   value   = LOAD(AFTER(acc, blocks)[u])
//
// A block's operands are few enough to stay in a cache while the kept loops inside of it run.
#include "engine/lowering/block.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/staging.h"

namespace telegrad {
namespace {

class Blocker {
 public:
  Blocker(Rewriter& b, UOp sink, std::span<const UOp> blocks, std::span<const UOp> outside,
          Dependence d)
      : b_(b), g_(*b.graph()), sink_(sink), blocks_(blocks), outside_(outside), d_(std::move(d)) {
    for (uint32_t id : PostOrder(sink)) {
      const UOp u = g_.at(id);
      if (u.is(Op::kRange)) next_range_ = std::max(next_range_, u.range_id() + 1);
      if (u.is(Op::kBuffer)) next_slot_ = std::max(next_slot_, u.buffer_slot() + 1);
    }
  }

  UOp Run() {
    Replacements with;
    for (uint32_t id : PostOrder(sink_)) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kReduce) || !FoldsBlocks(u)) continue;
      const UOp value = Fold(u);
      if (!value.valid()) return value;
      with[id] = {value, {}};
    }
    return with.empty() ? sink_ : Substitute(b_, sink_, with);
  }

 private:
  bool IsBlock(UOp range) const { return std::ranges::find(blocks_, range) != blocks_.end(); }
  bool FoldsBlocks(UOp reduce) const {
    for (int i = 1; i < reduce.num_src(); ++i) {
      if (IsBlock(reduce.src(i))) return true;
    }
    return false;
  }

  // The loops in which these ranges are reduced, which are shared by all REDUCEs that depend on the
  // same ones, and what becomes of the ranges there.
  struct Kept {
    std::vector<UOp> ranges;
    Replacements with;
  };
  const Kept& Loops(RangeSet inside, const std::vector<UOp>& ranges) {
    const auto it = loops_.find(inside);
    if (it != loops_.end()) return it->second;
    Kept& kept = loops_[inside];
    for (UOp r : ranges) {
      const auto type = r.axis_type();
      kept.ranges.push_back(g_.Range(next_range_++, type, r.src(0)));
      kept.with[r.id()] = {kept.ranges.back(), {kept.ranges.back()}};
    }
    return kept;
  }

  UOp Fold(UOp reduce) {
    constexpr Op kCombine[] = {Op::kAdd, Op::kMul, Op::kMax};  // by ReduceKind
    const auto kind = reduce.reduce_kind();
    const DType dtype = reduce.dtype();
    const std::vector<int64_t> arg(reduce.arg().begin(), reduce.arg().end());  // nodes are made
    std::vector<UOp> ranges, blocks, rest{reduce.src(0)};
    RangeSet inside = 0;
    for (RangeSet set = d_.of[reduce.id()]; set != 0; set &= set - 1) {
      const UOp r = d_.ranges[std::countr_zero(set)];
      if (std::ranges::find(outside_, r) != outside_.end()) continue;
      inside |= Bit(std::countr_zero(set));
      ranges.push_back(r);
    }
    std::ranges::stable_sort(ranges, {}, [](UOp r) {
      return IsType(r, AxisType::kVector) ? 2 : IsType(r, AxisType::kUpcast) ? 1 : 0;
    });
    for (int i = 1; i < reduce.num_src(); ++i) {
      (IsBlock(reduce.src(i)) ? blocks : rest).push_back(reduce.src(i));
    }
    Staging s{.dtype = dtype,
              .constant = ReduceIdentity(kind, dtype),
              .slot = next_slot_++,
              .own = {outside_.begin(), outside_.end()}};
    for (UOp r : ranges) {
      s.layout.axes.push_back({.size = SizeOf(r)});
      s.axes.push_back({.range = r, .loops = {{r.axis_type(), SizeOf(r)}}});
    }
    const UOp memory = StagedMemory(g_, s), init = FillTile(b_, s, memory, {}, &next_range_).nest;

    const auto& [loop, fresh] = Loops(inside, ranges);
    const UOp at = s.layout.At(b_, loop), read = s.layout.At(b_, ranges);
    return Accumulate(g_, {memory, init, blocks, loop, at, read}, [&, &fresh = fresh](UOp to) {
      const UOp part = Substitute(
          b_, rest.size() == 1 ? rest[0] : g_.Make(Op::kReduce, DType::kVoid, rest, arg), fresh);
      if (!part.valid()) return part;
      return b_.Make(kCombine[static_cast<int>(kind)], {g_.Make(Op::kLoad, {to}), part});
    });
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const std::span<const UOp> blocks_, outside_;
  const Dependence d_;
  std::map<RangeSet, Kept> loops_;
  int64_t next_range_ = 0, next_slot_ = 0;
};

}  // namespace

UOp FoldInBlocks(Rewriter& b, UOp sink, std::span<const UOp> blocks, std::span<const UOp> outside) {
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) {
    return b.graph()->Fail(ResourceExhausted("lowering: more than ", kMaxRanges, " ranges"));
  }
  return Blocker(b, sink, blocks, outside, *std::move(d)).Run();
}

}  // namespace telegrad
