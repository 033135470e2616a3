#include "engine/lowering/moves/split.h"

#include <algorithm>

#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

AxisType OuterAxis(const SplitRange& s) {
  if (s.thread) return AxisType::kThread;
  return s.block ? AxisType::kLoop : s.range.axis_type();
}

AxisType PartAxis(const RangeMove& m) {
  switch (RowOf(m.kind).part) {
    case MovePart::kLanes:
      return AxisType::kVector;
    case MovePart::kUnrolled:
      return AxisType::kUnroll;
    case MovePart::kLoop:
      return m.range.axis_type();
    case MovePart::kReplicas:
    case MovePart::kThreads:      // has a range already
    case MovePart::kInstruction:  // has none
    case MovePart::kNone:
      break;
  }
  return AxisType::kUpcast;
}

}  // namespace

std::vector<SplitRange> PlanSplits(const std::vector<RangeMove>& moves) {
  std::vector<SplitRange> splits;
  for (const RangeMove& m : moves) {
    auto s = std::ranges::find(splits, m.range, &SplitRange::range);
    if (s == splits.end()) {
      s = splits.insert(s, SplitRange());
      s->range = m.range;
      s->size = SizeOf(m.range);
    }
    s->group |= m.kind == Move::Kind::kGroup;
    s->thread |= m.kind == Move::Kind::kThread;
    const MoveRow& row = RowOf(m.kind);
    if (!row.splits()) continue;
    const bool loop = row.part == MovePart::kLoop;
    s->block |= loop;
    // A block is around the tile that other moves make.
    s->parts.insert(loop ? s->parts.begin() : s->parts.end(), m);
    s->tile *= m.amount;
  }
  for (SplitRange& s : splits) s.count = (s.size + s.tile - 1) / s.tile;
  return splits;
}

absl::Status MakeParts(Rewriter& b, const Parallel& parallel, const Padding& padding, bool once,
                       int64_t* next_id, SplitRange* split) {
  Graph& g = *b.graph();
  SplitRange& s = *split;
  const bool divides = s.count * s.tile == s.size;
  if (!divides && IsType(s.range, AxisType::kReduce) && !padding.gates_reductions) {
    return Internal("lowering: ", s.tile, " does not divide the reduced size ", s.size);
  }
  const auto times = [&](UOp x, int64_t by) { return b.Make(Op::kMul, {x, g.Index(by)}); };
  s.outer = s.within = g.Index(0);
  if (const auto group = parallel.groups.find(s.range.id()); group != parallel.groups.end()) {
    s.outer = group->second;
  } else if (s.count > 1) {
    s.outer = g.Range((*next_id)++, OuterAxis(s), g.Index(s.count));
    s.with.ranges.push_back(s.outer);
  }
  UOp value = s.outer;
  const bool back = !divides && padding.moves_back && !once && s.size > s.tile;
  if (back) {  // min(outer * tile, size - tile); the parts add to it, each by its own step
    const UOp begin = times(value, -s.tile);
    value = times(b.Make(Op::kMax, {begin, g.Index(s.tile - s.size)}), -1);
  }
  UOp whole = value;  // without lanes, where these lie all inside or all outside
  int64_t step = s.tile, lanes = 1;
  for (const RangeMove& m : s.parts) {
    step /= m.amount;
    if (m.kind == Move::Kind::kTensorcore) {
      if (s.staged) s.within = times(s.within, m.amount);
      whole = value = times(value, m.amount);
      const auto at = parallel.rows_and_columns.find(s.range.id());
      if (at == parallel.rows_and_columns.end()) continue;
      whole = value = b.Make(Op::kAdd, {value, at->second});
      continue;
    }
    const UOp part = m.kind == Move::Kind::kLocal
                         ? parallel.threads.at(static_cast<size_t>(m.axis))
                         : g.Range((*next_id)++, PartAxis(m), g.Index(m.amount));
    const auto add = [&](UOp x) { return b.Make(Op::kAdd, {times(x, m.amount), part}); };
    s.with.ranges.push_back(part);
    value = back ? b.Make(Op::kAdd, {value, times(part, step)}) : add(value);
    if (s.staged) s.within = add(s.within);
    const bool together = padding.gates_vectors && s.size % m.amount == 0;
    if (RowOf(m.kind).part == MovePart::kLanes && together) {
      lanes = m.amount;
    } else {
      whole = value;
    }
  }
  s.with.value = value;
  if (divides || back) return absl::OkStatus();
  s.inside = g.Make(Op::kCmpLt, {s.range, g.Index(s.size)});
  s.inside_with = b.Make(Op::kCmpLt, {whole, g.Index(s.size / lanes)});
  return absl::OkStatus();
}

}  // namespace telegrad
