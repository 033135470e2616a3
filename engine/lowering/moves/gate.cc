#include "engine/lowering/moves/gate.h"

#include <algorithm>

#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

class Gater {
 public:
  Gater(Rewriter& b, UOp sink, const Dependence& d, const Parallel& parallel,
        const Padding& padding, std::span<const UOp> apart)
      : b_(b),
        g_(*b.graph()),
        sink_(sink),
        d_(d),
        parallel_(parallel),
        before_split_(padding.gates_loads),
        apart_(apart) {}

  void Add(const SplitRange& s) {
    const RangeSet set = before_split_ ? SetOf(std::span(&s.range, 1)) : SetOf(s.with.ranges);
    for (const RangeMove& m : s.parts) {
      if (m.kind == Move::Kind::kLocal) on_axis_.at(static_cast<size_t>(m.axis)) |= set;
    }
    if (s.inside.valid()) conditions_.push_back({set, before_split_ ? s.inside : s.inside_with});
  }

  UOp Run() {
    // In the order of the kernel's ranges.
    if (before_split_) std::ranges::sort(conditions_, {}, &Condition::on);
    return Rebuild(g_, sink_, [&](UOp u, std::vector<UOp>* src) {
      if (std::ranges::find(apart_, u) != apart_.end()) return u;
      if (u.is(Op::kLoad) && NeedsGate(u.src(0))) {
        src->front() = WithGate(src->front(), Inside(d_.of[DecidesAbout(u.src(0)).id()]));
      } else if (u.is(Op::kStore)) {
        src->front() = WithGate(src->front(), Inside(d_.of[u.id()]));
        src->front() = WithGate(src->front(), FirstThread(d_.of[u.id()]));
      } else if (u.is(Op::kReduce)) {
        src->front() = OrIdentity(u, src->front(), Inside(SetOf(std::span(*src).subspan(1))));
      }
      return WithSources(g_, u, *src);
    });
  }

 private:
  struct Condition {
    RangeSet on;
    UOp holds;
  };

  RangeSet SetOf(std::span<const UOp> ranges) const {
    RangeSet set = 0;
    for (UOp range : ranges) {
      if (const int r = d_.IndexOf(range); r >= 0) set |= Bit(r);
    }
    return set;
  }

  // What is loaded beyond a size is not used. Memory of a thread may have no value there.
  bool NeedsGate(UOp address) const {
    return !conditions_.empty() &&
           (before_split_ || Memory(address).is(Op::kBuffer) || !ProveInside(address));
  }

  // What has to be inside for a load to be. A gate that the load has keeps it in its buffer.
  UOp DecidesAbout(UOp address) const { return before_split_ ? address : address.src(1); }

  // All conditions on ranges of `set`; invalid if there are none.
  UOp Inside(RangeSet set) {
    UOp gate;
    for (const Condition& c : conditions_) {
      if ((set & c.on) != 0) gate = Both(gate, c.holds);
    }
    return gate;
  }

  // Of each axis that `set` has no range of; invalid if there is none.
  UOp FirstThread(RangeSet set) {
    UOp gate;
    for (size_t axis = 0; axis < on_axis_.size(); ++axis) {
      const UOp thread = parallel_.threads[axis];
      if (!thread.valid() || SizeOf(thread) == 1 || (set & on_axis_[axis]) != 0) continue;
      gate = Both(gate, g_.Make(Op::kCmpLt, {thread, g_.Index(1)}));
    }
    return gate;
  }

  // Conditions on ranges that are not split always hold: no rule may see them.
  UOp Both(UOp x, UOp y) {
    if (!x.valid() || !y.valid()) return x.valid() ? x : y;
    return before_split_ ? g_.Make(Op::kAnd, {x, y}) : b_.Make(Op::kAnd, {x, y});
  }

  UOp WithGate(UOp address, UOp gate) {
    if (!gate.valid()) return address;
    if (address.num_src() == 3) gate = Both(address.src(2), gate);
    return g_.Make(Op::kIndex, {address.src(0), address.src(1), gate});
  }

  UOp OrIdentity(UOp reduce, UOp value, UOp inside) {
    if (!inside.valid()) return value;
    const auto kind = reduce.reduce_kind();
    const UOp identity = g_.ConstWord(reduce.dtype(), ReduceIdentity(kind, reduce.dtype()));
    return g_.Make(Op::kWhere, {inside, value, identity});
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const Dependence& d_;
  const Parallel& parallel_;
  const bool before_split_;
  const std::span<const UOp> apart_;
  std::vector<Condition> conditions_;
  std::array<RangeSet, kMaxThreadAxes> on_axis_{};  // ranges with a part
};

}  // namespace

absl::StatusOr<UOp> GateIterations(Rewriter& b, UOp sink, std::span<const SplitRange> splits,
                                   const Parallel& parallel, const Padding& padding,
                                   std::span<const UOp> apart) {
  const std::optional<Dependence> d = FindDependence(sink);
  if (!d) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  Gater gater(b, sink, *d, parallel, padding, apart);
  for (const SplitRange& split : splits) gater.Add(split);
  const UOp out = gater.Run();
  if (!out.valid()) return b.graph()->status();
  return out;
}

}  // namespace telegrad
