// With a new range s in place of the shared range t and the loop r directly inside of it:
//
//   t  ->  s // size(r)      r  ->  s % size(r)      END(..., t, r, rest)  ->  END(..., s, rest)
//
// What depends on t alone, such as a copy of an operand, is then computed for each iteration of r.
#include "engine/lowering/shared_loops.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "engine/base/status.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

constexpr double kMaxAgain = 0.1;  // of the work, that is done again in more iterations

struct Pair {
  UOp shared, loop;
};

// Whether it is memory that each iteration of them has for itself.
bool IsOwn(UOp u, const Pair& p) {
  if (!u.is(Op::kAfter)) return false;
  for (int i = 1; i < u.num_src(); ++i) {
    if (u.src(i) == p.shared || u.src(i) == p.loop) return true;
  }
  return false;
}

// Whether every nest of the kernel closes `shared` outermost and `loop` directly inside of it.
bool AreOutermost(UOp sink, const Pair& p) {
  for (int i = 0; i < sink.num_src(); ++i) {
    const UOp end = sink.src(i);
    if (!end.is(Op::kEnd) || end.num_src() < 3) return false;
    if (end.src(1) != p.shared || end.src(2) != p.loop) return false;
  }
  return true;
}

// Whether what the kernel writes is written by one iteration of both: each store depends on them.
bool AreIndependent(UOp sink, const Dependence& d, const Pair& p) {
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (IsOwn(u, p)) {
      for (int i = 1; i < u.num_src(); ++i) {
        if (!u.src(i).is(Op::kRange)) return false;  // what it waits for may depend on them, too
      }
    }
    if (!u.is(Op::kStore) || !Memory(u.src(0)).is(Op::kParam)) continue;
    if (!d.Depends(u.src(0), p.shared) || !d.Depends(u.src(0), p.loop)) return false;
  }
  return true;
}

std::optional<Pair> FindPair(UOp sink, const Target& target) {
  const UOp end = sink.src(0);
  if (!end.is(Op::kEnd) || end.num_src() < 3) return std::nullopt;
  const Pair p{end.src(1), end.src(2)};
  if (!IsType(p.shared, AxisType::kThread) || !IsType(p.loop, AxisType::kLoop)) return std::nullopt;
  if (!p.shared.src(0).is_const() || !p.loop.src(0).is_const()) return std::nullopt;
  if (!AreOutermost(sink, p)) return std::nullopt;
  const std::optional<KernelShape> s = ReadShape(sink, target);
  if (!s || !AreIndependent(sink, s->d, p)) return std::nullopt;
  const int loop = s->d.IndexOf(p.loop);
  double all = 0, again = 0;
  for (const Work& work : s->works) {
    const double cycles = CyclesOf(*s, work, target);
    all += cycles;
    if (!Has(work.all, loop)) again += cycles * static_cast<double>(SizeOf(p.loop) - 1);
  }
  const bool brief =
      all <= static_cast<double>(target.unit_cycles) * static_cast<double>(SizeOf(p.shared));
  if (brief || again > kMaxAgain * all) return std::nullopt;
  return p;
}

// Two loops of which moves say that workers share both: their conditions (moves/check.cc) ensure
// that the iterations are independent.
std::optional<Pair> FindThreads(UOp sink) {
  const UOp end = sink.src(0);
  if (!end.is(Op::kEnd) || end.num_src() < 3) return std::nullopt;
  const Pair p{end.src(1), end.src(2)};
  const bool both = IsType(p.shared, AxisType::kThread) && IsType(p.loop, AxisType::kThread);
  return both ? std::optional(p) : std::nullopt;
}

UOp Join(Rewriter& b, UOp sink, const Pair& p) {
  Graph& g = *b.graph();
  const UOp size = g.Index(SizeOf(p.loop));
  const UOp joined =
      g.Range(NextRangeId(sink), AxisType::kThread, g.Index(SizeOf(p.shared) * SizeOf(p.loop)));
  Replacements with{{p.shared.id(), {b.Make(Op::kFloorDiv, {joined, size}), {joined}}},
                    {p.loop.id(), {b.Make(Op::kFloorMod, {joined, size}), {}}}};
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!IsOwn(u, p)) continue;
    std::vector<UOp> src{Substitute(b, u.src(0), with)};
    for (int i = 1; i < u.num_src(); ++i) {
      // The end of another loop may be computed from them.
      const bool own = u.src(i) == p.shared || u.src(i) == p.loop;
      const UOp s = own ? joined : Substitute(b, u.src(i), with);
      if (std::ranges::find(src, s) == src.end()) src.push_back(s);
    }
    with[id] = {g.Make(Op::kAfter, DType::kVoid, src), {}};
  }
  return Substitute(b, sink, with);
}

}  // namespace

double CyclesOf(const KernelShape& shape, const Work& work, const Target& target) {
  RangeSet scalar = work.all;
  for (RangeSet set = work.all; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    if (IsType(shape.d.ranges[r], AxisType::kVector)) scalar &= ~Bit(r);
  }
  double cost = 0;
  for (const Work::Operation& o : work.operations) cost += o.cost;
  cost = std::max(cost, static_cast<double>(work.accesses.size()));
  return shape.Iterations(scalar) * cost * CostsOf(target).thread.operation;
}

UOp ShareLoops(Rewriter& b, UOp sink, const Target& target) {
  while (const std::optional<Pair> pair = FindThreads(sink)) {
    if (!AreOutermost(sink, *pair)) {
      return b.graph()->Fail(Internal("lowering: workers share loops that are not around all"));
    }
    sink = Join(b, sink, *pair);
    if (!sink.valid()) return sink;
  }
  while (const std::optional<Pair> pair = FindPair(sink, target)) {
    sink = Join(b, sink, *pair);
    if (!sink.valid()) break;
  }
  return sink;
}

}  // namespace telegrad
