// A RANGE is closed by ENDs, around a STORE, and by REDUCEs. Each of them has conditions without
// which an iteration does nothing: the gate of the STORE, or that of the WHERE that keeps what is
// in memory; and those without which the value of the REDUCE is its identity. Of each condition
// that is an upper bound of the range, whatever the other ranges are, follows an end. The last of
// all that close a range say how many iterations there are.
//
// The value of a split range is a sum of its parts, so a condition on it is one on the outer part,
// too: outer * 16 + lane < n holds for no lane where outer >= ceil(n / 16).
#include "engine/lowering/runtime_ends.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/lowering/activity.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/runtime_condition.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

// How many iterations of a range a condition leaves, and whether it holds in all of these.
struct RunEnd {
  UOp end;
  bool holds = false;
};

class LoopEnder {
 public:
  LoopEnder(Rewriter& b, UOp sink, const Dependence& d)
      : b_(b),
        g_(*b.graph()),
        sink_(sink),
        order_(PostOrder(sink)),
        d_(d),
        activity_(sink, d),
        conditions_(b, d, activity_) {
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      shares_ |= u.is(Op::kBuffer) && u.space() == AddressSpace::kLocal;
    }
  }

  // All loops whose ends are the same everywhere.
  UOp Run() {
    FindConditions();
    Replacements with;
    for (size_t r = 0; r < d_.ranges.size(); ++r) {
      around_ = Around(r);
      EndRange(r, &with);
    }
    return with.empty() ? sink_ : Substitute(b_, sink_, with);
  }

  // One loop whose end also depends on loops around it.
  UOp RunInner() {
    inner_ = true;
    FindConditions();
    for (size_t r = 0; r < d_.ranges.size(); ++r) {
      around_ = Around(r);
      if (around_ == 0) continue;
      Replacements with;
      EndRange(r, &with);
      if (!with.empty()) return Substitute(b_, sink_, with);
    }
    return sink_;
  }

 private:
  struct Closing {
    UOp by;  // an END or a REDUCE
    std::vector<UOp> conditions;
  };

  // Of all that closes each range.
  void FindConditions() {
    closed_.resize(d_.ranges.size());
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kEnd) && !u.is(Op::kReduce)) continue;
      const Closing closing{u, activity_.Needs(u)};
      for (int i = 1; i < u.num_src(); ++i) {
        if (IsOwn(u, u.src(i))) continue;
        closed_[static_cast<size_t>(d_.IndexOf(u.src(i)))].push_back(closing);
      }
    }
  }

  // Whether a nest writes memory that each iteration of the range has for itself: others in that
  // iteration read it, so it matters as they do.
  static bool IsOwn(UOp nest, UOp range) {
    while (nest.is(Op::kEnd)) nest = nest.src(0);
    if (!nest.is(Op::kStore) || !Memory(nest.src(0)).is(Op::kBuffer)) return false;
    for (UOp memory = nest.src(0).src(0); memory.is(Op::kAfter); memory = memory.src(0)) {
      for (int i = 1; i < memory.num_src(); ++i) {
        if (memory.src(i) == range) return true;
      }
    }
    return false;
  }

  // What x < y says about the range.
  std::optional<RunEnd> EndOf(UOp condition, UOp range) const {
    const std::optional<RunCondition> form = conditions_.Read(condition, range, around_);
    if (!form || (form->around && !inner_)) return std::nullopt;  // that one is better
    const UOp end = conditions_.End(*form, range, form->Least());
    return end.valid() ? std::optional(RunEnd{end, form->free.empty()}) : std::nullopt;
  }

  // Threads of a workgroup that fill memory together stay together; but all of it may leave.
  bool MayEnd(UOp range) const {
    if (IsType(range, AxisType::kGroup)) return true;
    return !shares_ && (IsType(range, AxisType::kLoop) || IsType(range, AxisType::kReduce) ||
                        IsType(range, AxisType::kThread));
  }

  // The loops that a range is inside of, where one REDUCE alone closes it.
  RangeSet Around(size_t r) const {
    const bool one = closed_[r].size() == 1 && closed_[r][0].by.is(Op::kReduce);
    return one ? d_.of[closed_[r][0].by.id()] : 0;
  }

  void EndRange(size_t r, Replacements* with) {
    const UOp range = d_.ranges[r];
    if (!MayEnd(range) || !range.src(0).is_const() || closed_[r].empty()) return;
    std::vector<UOp> ends;
    std::vector<UOp> held;  // conditions
    for (const Closing& closing : closed_[r]) {
      UOp end;
      for (UOp condition : closing.conditions) {
        const std::optional<RunEnd> one = EndOf(condition, range);
        if (!one) continue;
        end = end.valid() && end != one->end ? conditions_.Least(end, one->end) : one->end;
        if (one->holds) held.push_back(condition);
      }
      if (!end.valid()) return;
      if (std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
    }
    UOp last = ends[0];
    for (size_t i = 1; i < ends.size(); ++i) last = b_.Make(Op::kMax, {last, ends[i]});
    const UOp size = range.src(0);
    if (last.vmin() < 0) last = b_.Make(Op::kMax, {last, g_.Index(0)});
    const UOp end = last.vmax() > size.const_word() ? conditions_.Least(last, size) : last;
    const UOp ended = g_.Range(range.range_id(), range.axis_type(), end);
    (*with)[range.id()] = {ended, {ended}};
    if (ends.size() > 1) return;  // what one does is less than what another does
    for (UOp condition : held) (*with)[condition.id()] = {g_.True(), {}};
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const std::vector<uint32_t> order_;
  const Dependence& d_;
  const Activity activity_;
  const RunConditions conditions_;
  RangeSet around_ = 0;                       // loops that an end may depend on
  bool inner_ = false;                        // whether it is to
  bool shares_ = false;                       // memory of a workgroup
  std::vector<std::vector<Closing>> closed_;  // by range
};

// Of several ranges of workgroups one that the run ends comes first: then the workgroups that there
// are have the first numbers, and a launch may leave out the others.
UOp PutEndedGroupsFirst(Graph& g, UOp sink) {
  const auto is_group = [](UOp u) { return u.is(Op::kRange) && IsType(u, AxisType::kGroup); };
  return Rebuild(g, sink, [&](UOp u, std::vector<UOp>* src) {
    if (!u.is(Op::kEnd)) return WithSources(g, u, *src);
    const auto begin = std::find_if(src->begin() + 1, src->end(), is_group);
    const auto end = std::find_if_not(begin, src->end(), is_group);
    const auto ended = std::find_if(begin, end, [](UOp r) { return !r.src(0).is_const(); });
    if (ended != end) std::rotate(begin, ended, ended + 1);
    return WithSources(g, u, *src);
  });
}

}  // namespace

UOp EndLoops(Rewriter& b, UOp sink) {
  if (!ReadsNumbers(sink)) return sink;
  constexpr int kMostInner = 8;  // that depend on loops around them
  for (int i = 0; i <= kMostInner && sink.valid(); ++i) {
    const std::optional<Dependence> d = FindDependence(sink);
    if (!d) return sink;
    const UOp ended = i == 0 ? LoopEnder(b, sink, *d).Run() : LoopEnder(b, sink, *d).RunInner();
    if (i > 0 && ended == sink) break;
    sink = ended;
  }
  return sink.valid() ? PutEndedGroupsFirst(*b.graph(), sink) : sink;
}

}  // namespace telegrad
