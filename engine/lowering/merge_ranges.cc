#include "engine/lowering/merge_ranges.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup.h"

namespace telegrad {
namespace {

constexpr int64_t kMinRepeated = 16;  // iterations of a loop that repeats a reduction's windows

// Ranges that a gate depends on, and those that anything else than an address does.
struct Uses {
  uint64_t gates = 0, values = 0;
};

Uses UsesOf(UOp sink, const Dependence& d) {
  const Graph& graph = *sink.graph();
  std::vector<bool> seen(sink.id() + 1, false);
  std::vector<uint32_t> stack{sink.id()};
  Uses uses;
  while (!stack.empty()) {
    const UOp u = graph.at(stack.back());
    stack.pop_back();
    if (seen[u.id()]) continue;
    seen[u.id()] = true;
    for (int i = 0; i < u.num_src(); ++i) {
      const UOp s = u.src(i);
      const bool closes = i > 0 && (u.is(Op::kEnd) || u.is(Op::kReduce));
      if (u.is(Op::kIndex) && i == 1) continue;
      if (u.is(Op::kIndex) && i == 2) {
        uses.gates |= d.of[s.id()];
        continue;
      }
      if (s.is(Op::kRange)) {
        if (!closes) uses.values |= uint64_t{1} << d.IndexOf(s);
        continue;
      }
      stack.push_back(s.id());
    }
  }
  return uses;
}

// Whether every access steps over `outer` as if it continued `inner`.
bool Continues(const std::vector<UOp>& addresses, UOp outer, UOp inner) {
  return std::ranges::all_of(addresses, [&](UOp a) {
    const auto x = StrideOf(a.src(1), outer), y = StrideOf(a.src(1), inner);
    return x && y && *x == *y * SizeOf(inner);
  });
}

struct Neighbours {
  UOp outer, inner;
};

// Whether `u` closes both ranges, one right after the other, or neither.
bool ClosesAsOne(UOp u, UOp outer, UOp inner) {
  for (int i = 1; i < u.num_src(); ++i) {
    if (u.src(i) == inner) return false;
    if (u.src(i) != outer) continue;
    return i + 1 < u.num_src() && u.src(i + 1) == inner;
  }
  return true;
}

// Whether the rows of `inner` leave so many lanes unused that vectors across their ends are fewer,
// and what is gated are the windows of a reduction that other loops repeat: of these vectors each
// has its mask, which is found once for all of the reduction.
bool PaysAcrossRows(UOp outer, UOp inner, const std::vector<UOp>& addresses,
                    const std::vector<UOp>& closers, const Dependence& d, int64_t lanes) {
  if (!IsType(outer, AxisType::kLoop) || !IsType(inner, AxisType::kLoop)) return false;
  const int64_t rows = SizeOf(outer), row = SizeOf(inner);
  const int64_t apart = rows * ((row + lanes - 1) / lanes);
  const int64_t joined = (rows * row + lanes - 1) / lanes;
  if (apart * 20 <= joined * 21) return false;
  std::vector<UOp> gated;  // by either range
  for (UOp a : addresses) {
    if (a.num_src() < 3 || !(d.Depends(a.src(2), outer) || d.Depends(a.src(2), inner))) continue;
    gated.push_back(a);
    const std::vector<uint32_t> gate = PostOrder(a.src(2));
    const Graph& g = *a.graph();
    if (std::ranges::any_of(gate, [&](uint32_t id) { return g.op(id) == Op::kLoad; })) return false;
  }
  bool windows = false, repeated = false;
  for (UOp u : closers) {
    for (int i = 1; i < u.num_src(); ++i) {
      const UOp range = u.src(i);
      const auto depends = [&](UOp a) {
        return d.Depends(a.src(1), range) || d.Depends(a.src(2), range);
      };
      if (u.is(Op::kReduce)) {
        windows |= std::ranges::any_of(gated, [&](UOp a) { return d.Depends(a.src(2), range); });
      } else if (IsType(range, AxisType::kLoop) && SizeOf(range) >= kMinRepeated) {
        repeated |= std::ranges::none_of(gated, depends);
      }
    }
  }
  return windows && repeated;
}

// A pair of ranges that can be joined: whoever closes one closes the other next to it.
std::optional<Neighbours> FindMergeable(UOp sink, int64_t lanes) {
  const std::optional<Dependence> d = FindDependence(sink);
  if (!d) return std::nullopt;
  const Uses uses = UsesOf(sink, *d);
  std::vector<UOp> addresses, closers;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kIndex)) addresses.push_back(u);
    if (u.is(Op::kEnd) || u.is(Op::kReduce)) closers.push_back(u);
  }
  for (UOp u : closers) {
    for (int i = 1; i + 1 < u.num_src(); ++i) {
      const UOp outer = u.src(i), inner = u.src(i + 1);
      const uint64_t both = uint64_t{1} << d->IndexOf(outer) | uint64_t{1} << d->IndexOf(inner);
      const bool fixed = outer.src(0).is_const() && inner.src(0).is_const();
      if (fixed && (uses.values & both) == 0 && Continues(addresses, outer, inner) &&
          std::ranges::all_of(closers, [&](UOp c) { return ClosesAsOne(c, outer, inner); }) &&
          ((uses.gates & both) == 0 ||
           PaysAcrossRows(outer, inner, addresses, closers, *d, lanes))) {
        return Neighbours{outer, inner};
      }
    }
  }
  return std::nullopt;
}
// With the outer range held at 0, the inner one alone walks the whole product: its stride is the
// same. A gate needs to know both.
UOp Join(Rewriter& b, UOp sink, UOp outer, UOp inner) {
  Graph& g = *b.graph();
  const UOp merged =
      g.Range(inner.range_id(), inner.axis_type(), g.Index(SizeOf(outer) * SizeOf(inner)));
  const Replacements apart{{outer.id(), {b.Make(Op::kFloorDiv, {merged, inner.src(0)}), {}}},
                           {inner.id(), {b.Make(Op::kFloorMod, {merged, inner.src(0)}), {merged}}}};
  Replacements with{{outer.id(), {g.Index(0), {}}}, {inner.id(), {merged, {merged}}}};
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!u.is(Op::kIndex) || u.num_src() != 3) continue;
    with[u.src(2).id()] = {Substitute(b, u.src(2), apart), {}};
  }
  return Substitute(b, sink, with);
}

}  // namespace

UOp MergeRanges(Rewriter& b, UOp sink, const Target& target) {
  // Threads of a workgroup are no lanes of a vector: none are unused at the end of a row.
  const int64_t lanes = target.lanes();
  // Where iterations are threads' already, ranges are what elements each of these has.
  for (uint32_t id : PostOrder(sink)) {
    if (sink.graph()->op(id) == Op::kRange && IsThreads(sink.graph()->at(id))) return sink;
  }
  while (const std::optional<Neighbours> pair = FindMergeable(sink, lanes)) {
    sink = Join(b, sink, pair->outer, pair->inner);
    if (!sink.valid()) return sink;
  }
  return sink;
}

}  // namespace telegrad
