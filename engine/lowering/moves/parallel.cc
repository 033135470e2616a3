// Threads and workgroups. Those of an axis are one range, whatever they share.
#include <algorithm>

#include "engine/lowering/moves/split.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr size_t kMaxGroupRanges = 3;

// Up to three ranges are workgroups; the outermost of more are joined.
void MakeGroups(Rewriter& b, const std::vector<SplitRange>& splits, int64_t* next_id,
                Parallel* out) {
  Graph& g = *b.graph();
  std::vector<const SplitRange*> grouped;
  for (const SplitRange& s : splits) {
    if (s.group && s.count > 1) grouped.push_back(&s);
  }
  const auto make = [&](int64_t count) {
    return out->ranges.emplace_back(g.Range((*next_id)++, AxisType::kGroup, g.Index(count)));
  };
  const size_t joined = grouped.size() > kMaxGroupRanges ? grouped.size() - kMaxGroupRanges + 1 : 0;
  if (joined > 0) {
    int64_t all = 1;
    for (size_t i = 0; i < joined; ++i) all *= grouped[i]->count;
    const UOp group = make(all);
    int64_t inner = 1;
    for (size_t i = joined; i-- > 0;) {
      UOp value = b.Make(Op::kFloorDiv, {group, g.Index(inner)});
      if (i > 0) value = b.Make(Op::kFloorMod, {value, g.Index(grouped[i]->count)});
      out->groups[grouped[i]->range.id()] = value;
      inner *= grouped[i]->count;
    }
  }
  for (size_t i = joined; i < grouped.size(); ++i) {
    out->groups[grouped[i]->range.id()] = make(grouped[i]->count);
  }
}

}  // namespace

absl::StatusOr<Parallel> MakeParallel(Rewriter& b, const std::vector<SplitRange>& splits,
                                      const std::vector<RangeMove>& moves, const Target& target,
                                      int64_t* next_id) {
  Graph& g = *b.graph();
  Parallel out;
  for (const RangeMove& m : moves) {
    if (m.kind != Move::Kind::kLocal) continue;
    UOp& thread = out.threads.at(static_cast<size_t>(m.axis));
    if (!thread.valid()) thread = g.Range((*next_id)++, AxisType::kLocal, g.Index(m.amount));
    if (SizeOf(thread) != m.amount) {
      return Internal("lowering: ", m.amount, " threads on an axis of ", SizeOf(thread));
    }
  }
  MakeGroups(b, splits, next_id, &out);
  // A program for workgroups has one, be it alone.
  if (out.ranges.empty() && target.has(ParallelLevel::kGroups)) {
    out.ranges.push_back(g.Range((*next_id)++, AxisType::kGroup, g.Index(1)));
  }
  for (size_t axis = out.threads.size(); axis-- > 0;) {
    if (out.threads[axis].valid()) out.ranges.push_back(out.threads[axis]);
  }
  return out;
}

}  // namespace telegrad
