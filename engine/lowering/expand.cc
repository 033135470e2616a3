// Replication is substitution: an iteration of an UPCAST range is the same expression with the
// range held at a constant, and interning shares what does not depend on it, which is exactly the
// reuse that a register tile is made for. Lanes are substitution too: IOTA in place of the range
// gives every value that depends on it the shape [lanes], and it stays a vector from then on.
//
// A loop nest, be it a root or one that an AFTER waits for, becomes one END for each of its
// replicas, all over the same loops. A reduced range of type UPCAST is replicated like any other:
// each replica has an accumulator of its own, and these are reduced at the end.
//
// Parallel ranges are nothing that is closed inside of a kernel: they stay around the whole of it,
// in one END around each root. What a reduction's threads have is put together by ReduceThreads,
// and what threads have written is waited for at a barrier.
#include "engine/lowering/expand.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/lane_index.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/reduce_step.h"
#include "engine/lowering/staging.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup.h"
#include "engine/lowering/workgroup_reduce.h"

namespace telegrad {
namespace {

constexpr int kMaxNesting = 16;  // of REDUCEs and nests inside each other
constexpr int64_t kNotHeld = -1;
constexpr int64_t kLanes = -2;

// By index of the range in Dependence: the constant it is held at, kLanes, or kNotHeld.
using Assignment = std::vector<int64_t>;

bool IsNest(UOp u) { return u.is(Op::kEnd) || u.is(Op::kStore); }

bool IsLocal(UOp memory) {
  return memory.is(Op::kBuffer) && memory.space() == AddressSpace::kLocal;
}

// Whether the threads of a workgroup share the iterations of a nest.
bool IsShared(UOp nest) {
  for (; nest.is(Op::kEnd); nest = nest.src(0)) {
    for (int i = 1; i < nest.num_src(); ++i) {
      if (IsThreads(nest.src(i))) return true;
    }
  }
  return false;
}

class Expander {
 public:
  // `expanded`: values that are expanded already.
  Expander(Rewriter& b, Dependence dependence, const Target& target, std::vector<UOp> expanded = {})
      : b_(b),
        g_(*b.graph()),
        d_(std::move(dependence)),
        expanded_(std::move(expanded)),
        warp_(target.warp),
        reorders_(target.reorders),
        keeps_order_(KeepsOrder(target)) {}

  absl::StatusOr<UOp> Run(UOp sink);
  // The end of a loop, as a value of the loops around it.
  absl::StatusOr<UOp> End(UOp sink, UOp end);

 private:
  // Whether one thread writes to an argument what others read: where threads differ in a range that
  // the nest does not depend on, one of them stores. Each has private memory of its own.
  bool WritesForOthers(UOp memory, UOp nest) const {
    while (memory.is(Op::kAfter)) memory = memory.src(0);
    return memory.is(Op::kParam) && std::ranges::any_of(threads_, [&](UOp range) {
             return !Has(d_.of[nest.id()], d_.IndexOf(range));
           });
  }
  void Prepare(UOp sink);
  // All combinations of the iterations of `ranges`, added to `base`.
  std::vector<Assignment> Combinations(const Assignment& base,
                                       const std::vector<UOp>& ranges) const;
  absl::StatusOr<UOp> Value(UOp root, const Assignment& a, int nesting);
  // What becomes of END(... STORE) or a STORE alone: one effect for each replica.
  absl::StatusOr<std::vector<UOp>> Nest(UOp effect, const Assignment& a, int nesting);
  // `a` without what `u` does not depend on.
  Assignment KeyOf(UOp u, const Assignment& a) const;
  // The loops that `u` is inside of where some ranges are held.
  std::vector<UOp> LoopsAround(UOp u, const Assignment& key) const;
  absl::StatusOr<UOp> Reduce(UOp reduce, const Assignment& a, int nesting);
  absl::StatusOr<UOp> Accumulate(UOp reduce, const Assignment& key, const std::vector<UOp>& values,
                                 const std::vector<UOp>& loops, int64_t lanes);
  // Where the order is fixed, whether products are rounded does not depend on what a gate becomes.
  bool Fuses(UOp reduce) const {
    return !keeps_order_ || !IsOrderedSum(reduce) || reduce.src(0).is(Op::kMul);
  }
  UOp Held(UOp range, int64_t at) {
    if (at != kLanes) return g_.Index(at);
    return g_.Make(Op::kIota, DType::kInt64, {}, {range.src(0).const_word()});
  }

  Rewriter& b_;
  Graph& g_;
  Dependence d_;
  const std::vector<UOp> expanded_;
  const int64_t warp_;
  const bool reorders_;
  const bool keeps_order_;
  int64_t next_slot_ = 0;
  std::vector<UOp> threads_;  // ranges, outermost first
  std::vector<bool> plain_;   // by node: it needs no REDUCE, nest or gate
  absl::flat_hash_map<std::pair<uint32_t, Assignment>, UOp> reduced_;
  absl::flat_hash_map<std::pair<uint32_t, Assignment>, std::vector<UOp>> nests_;
};

std::vector<Assignment> Expander::Combinations(const Assignment& base,
                                               const std::vector<UOp>& ranges) const {
  std::vector<Assignment> out{base};
  for (UOp range : ranges) {
    const int at = d_.IndexOf(range);
    std::vector<Assignment> next;
    for (const Assignment& a : out) {
      for (int64_t i = 0; i < range.src(0).const_word(); ++i) {
        next.push_back(a);
        next.back()[at] = i;
      }
    }
    out = std::move(next);
  }
  return out;
}

absl::StatusOr<UOp> Expander::Value(UOp root, const Assignment& a, int nesting) {
  RangeSet held = 0;
  for (size_t i = 0; i < a.size(); ++i) held |= RangeSet{a[i] != kNotHeld} << i;
  // Post-order that does not enter REDUCEs: those are expanded as a whole.
  absl::flat_hash_map<uint32_t, UOp> made;
  std::vector<std::pair<uint32_t, bool>> stack{{root.id(), false}};
  std::vector<UOp> src;
  while (!stack.empty()) {
    const auto [id, ready] = stack.back();
    stack.pop_back();
    if (made.contains(id)) continue;
    const UOp u = g_.at(id);
    if (u.is(Op::kReduce)) {
      TG_ASSIGN_OR_RETURN(made[id], Reduce(u, a, nesting));
      continue;
    }
    if (u.is(Op::kRange)) {
      const int64_t at = a[d_.IndexOf(u)];
      made[id] = at == kNotHeld ? u : Held(u, at);
      continue;
    }
    if (id < plain_.size() && plain_[id] && (d_.of[id] & held) == 0) {
      made[id] = u;
      continue;
    }
    if (!ready) {
      stack.push_back({id, true});
      for (uint32_t s : u.src_ids()) {
        if (!IsNest(g_.at(s))) stack.push_back({s, false});
      }
      continue;
    }
    src.clear();
    bool shared = false;
    const std::vector<uint32_t> from(u.src_ids().begin(), u.src_ids().end());  // nodes are made
    for (uint32_t s : from) {
      if (IsNest(g_.at(s))) {
        TG_ASSIGN_OR_RETURN(const std::vector<UOp> effects, Nest(g_.at(s), a, nesting + 1));
        src.insert(src.end(), effects.begin(), effects.end());
        shared |= IsShared(g_.at(s)) || (u.is(Op::kAfter) && WritesForOthers(u.src(0), g_.at(s)));
      } else {
        src.push_back(made.at(s));
      }
    }
    // Threads fill local memory anew once all have read it, and read what all have written or
    // waited for.
    shared |= u.is(Op::kAfter) && IsLocal(u.src(0)) &&
              (u.src(1).is(Op::kRange) || u.src(1).is(Op::kWait));
    if (u.is(Op::kWait)) shared = false;
    // What a thread loads before it reads local memory is under way then.
    const bool ahead = u.is(Op::kAfter) && u.src(0).is(Op::kAfter) && IsLocal(u.src(0).src(0));
    if (ahead) src = {src[0], BarrierOf(g_, Scope::kThread, std::span(src).subspan(1))};
    if (shared) src = {src[0], WorkgroupBarrier(g_, std::span(src).subspan(1))};
    if (u.is(Op::kIndex)) NormalizeAddress(b_, &src);
    const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    made[id] = b_.Make(u.op(), u.dtype(), src, arg);
    if (u.is(Op::kLoad) && u.src(0).num_src() == 3) {
      const UOp gate = made.at(u.src(0).src(2).id());
      if (made[id].valid() && made[id].shape().empty() && !gate.shape().empty()) {
        made[id] = b_.Make(
            Op::kWhere, {gate, made[id], g_.ConstWord(u.dtype(), ScalarFromMemory(u.dtype(), 0))});
      }
    }
    if (!made[id].valid()) return g_.status();
  }
  return made.at(root.id());
}

absl::StatusOr<UOp> Expander::Accumulate(UOp reduce, const Assignment& key,
                                         const std::vector<UOp>& values,
                                         const std::vector<UOp>& loops, int64_t lanes) {
  const auto kind = reduce.reduce_kind();
  const DType dtype = reduce.dtype();
  const UOp lane = lanes == 0 ? g_.Index(0) : g_.Make(Op::kIota, DType::kInt64, {}, {lanes});

  // The accumulator starts anew for each value of the ranges around the loop: the same ranges for
  // all replicas, for they share the loop. The thread range is around everything.
  std::vector<UOp> outside;
  for (size_t i = 0; i < d_.ranges.size(); ++i) {
    const UOp range = d_.ranges[i];
    const bool around = (d_.of[reduce.id()] >> i & 1) != 0 && key[i] == kNotHeld;
    if (around || IsType(range, AxisType::kThread)) outside.push_back(range);
  }
  const UOp memory = StagedMemory(g_, {.dtype = dtype,
                                       .slot = next_slot_++,
                                       .layout = {{{.size = std::max<int64_t>(lanes, 1)}}},
                                       .own = outside});
  const UOp init = g_.Make(Op::kStore, {g_.Make(Op::kIndex, {memory, lane}),
                                        g_.ConstWord(dtype, ReduceIdentity(kind, dtype))});
  return telegrad::Accumulate(g_, {memory, init, loops, {}, lane, lane}, [&](UOp at) {
    UOp sum = g_.Make(Op::kLoad, {at});
    for (UOp v : values) sum = Reduced(b_, kind, sum, v, Fuses(reduce));
    return sum;
  });
}

absl::StatusOr<UOp> Expander::Reduce(UOp reduce, const Assignment& a, int nesting) {
  // A sum of partial sums is two of them.
  const int most = keeps_order_ ? 2 * kMaxNesting : kMaxNesting;
  if (nesting > most) return ResourceExhausted("lowering: reductions nest too deeply");
  const Assignment key = KeyOf(reduce, a);
  if (const auto it = reduced_.find({reduce.id(), key}); it != reduced_.end()) return it->second;

  const auto kind = reduce.reduce_kind();
  Assignment base = key;
  std::vector<UOp> unrolled, upcast, loops, threads;
  int64_t folded_lanes = 0;
  for (int i = 1; i < reduce.num_src(); ++i) {
    const UOp range = reduce.src(i);
    if (IsType(range, AxisType::kUnroll)) {
      unrolled.push_back(range);
    } else if (IsType(range, AxisType::kUpcast)) {
      upcast.push_back(range);
    } else if (IsType(range, AxisType::kVector)) {
      folded_lanes = range.src(0).const_word();
      base[d_.IndexOf(range)] = kLanes;
    } else if (IsThreads(range)) {
      threads.push_back(range);
    } else {
      loops.push_back(range);
    }
  }
  UOp result, of_all_lanes;
  for (const Assignment& side : Combinations(base, upcast)) {
    std::vector<UOp> values;
    int64_t lanes = folded_lanes;  // 0: scalars
    for (const Assignment& c : Combinations(side, unrolled)) {
      TG_ASSIGN_OR_RETURN(const UOp value, Value(reduce.src(0), c, nesting + 1));
      values.push_back(value);
      if (!value.shape().empty()) lanes = value.shape()[0];
    }
    // The same in every lane: as often as there are lanes.
    const bool same =
        folded_lanes > 0 && std::ranges::all_of(values, [](UOp v) { return v.shape().empty(); });
    if (same) {
      const std::vector<UOp> once = values;
      for (int64_t i = 1; i < folded_lanes; ++i) {
        values.insert(values.end(), once.begin(), once.end());
      }
      lanes = 0;
    }
    UOp folded;
    if (loops.empty()) {
      const bool begins = keeps_order_ && IsOrderedSum(reduce);  // as a loop does
      folded =
          begins ? g_.ConstWord(reduce.dtype(), ReduceIdentity(kind, reduce.dtype())) : values[0];
      for (size_t i = begins ? 0 : 1; i < values.size(); ++i) {
        folded = Reduced(b_, kind, folded, values[i], Fuses(reduce));
      }
    } else {
      TG_ASSIGN_OR_RETURN(folded, Accumulate(reduce, key, values, loops, lanes));
    }
    // Another side, as one with a gate for each lane, may still have lanes to reduce.
    UOp& whole = same ? of_all_lanes : result;
    whole = whole.valid() ? Reduced(b_, kind, whole, folded) : folded;
  }
  if (folded_lanes > 0 && result.valid() && !result.shape().empty()) {
    result = ReducedLanes(g_, reduce, result);
  }
  if (of_all_lanes.valid()) {
    result = result.valid() ? Reduced(b_, kind, result, of_all_lanes) : of_all_lanes;
  }
  if (!threads.empty() && result.valid()) {
    const auto fold = [&](UOp x, UOp y) { return Reduced(b_, kind, x, y); };
    const WorkgroupPlace place{threads_, LoopsAround(reduce, key), &next_slot_, warp_};
    result = ReduceThreads(b_, result, threads, place, fold);
  }
  if (!result.valid()) return g_.status();
  reduced_.emplace(std::pair(reduce.id(), key), result);
  return result;
}

Assignment Expander::KeyOf(UOp u, const Assignment& a) const {
  Assignment key = a;
  for (size_t i = 0; i < key.size(); ++i) {
    if ((d_.of[u.id()] >> i & 1) == 0) key[i] = kNotHeld;
  }
  return key;
}

std::vector<UOp> Expander::LoopsAround(UOp u, const Assignment& key) const {
  std::vector<UOp> loops;
  for (size_t i = 0; i < key.size(); ++i) {
    const bool around = (d_.of[u.id()] >> i & 1) != 0 && key[i] == kNotHeld;
    if (around && !IsParallel(d_.ranges[i])) loops.push_back(d_.ranges[i]);
  }
  return loops;
}

absl::StatusOr<std::vector<UOp>> Expander::Nest(UOp effect, const Assignment& a, int nesting) {
  if (nesting > kMaxNesting) return ResourceExhausted("lowering: loops nest too deeply");
  const Assignment key = KeyOf(effect, a);
  if (const auto it = nests_.find({effect.id(), key}); it != nests_.end()) return it->second;
  Assignment base = key;
  std::vector<UOp> replicated, loops;
  UOp store = effect;
  for (; store.is(Op::kEnd); store = store.src(0)) {
    for (int i = 1; i < store.num_src(); ++i) {
      const UOp range = store.src(i);
      if (IsType(range, AxisType::kUpcast)) {
        replicated.push_back(range);
      } else if (IsType(range, AxisType::kVector)) {
        base[d_.IndexOf(range)] = kLanes;
      } else if (!IsParallel(range)) {
        loops.push_back(range);
      }
    }
  }
  // The shorter ranges inside: what a product reads along the longer one is then used at once by
  // all the accumulators that share it, and few values are live beside these. Registers of a GPU's
  // thread are assigned by another compiler, in its own order.
  if (!reorders_) std::ranges::stable_sort(replicated, std::greater<>{}, SizeOf);
  std::vector<UOp> effects;
  for (const Assignment& c : Combinations(base, replicated)) {
    TG_ASSIGN_OR_RETURN(const UOp value, Value(store, c, nesting));
    std::vector<UOp> end{value};
    end.insert(end.end(), loops.begin(), loops.end());
    effects.push_back(loops.empty() ? value : g_.Make(Op::kEnd, DType::kVoid, end));
  }
  if (!g_.status().ok()) return g_.status();
  nests_.emplace(std::pair(effect.id(), key), effects);
  return effects;
}

void Expander::Prepare(UOp sink) {
  plain_.resize(sink.id() + 1, false);
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g_.at(id);
    if (u.is(Op::kBuffer)) next_slot_ = std::max(next_slot_, u.buffer_slot() + 1);
    const bool waits = u.is(Op::kAfter) && IsLocal(u.src(0));
    plain_[id] = !u.is(Op::kReduce) && !IsNest(u) && !waits &&
                 !(u.is(Op::kIndex) && u.num_src() == 3) &&
                 std::ranges::all_of(u.src_ids(), [&](uint32_t s) { return plain_[s]; });
    if (std::ranges::find(expanded_, u) != expanded_.end()) plain_[id] = true;
  }
  const UOp first = sink.src(0);
  for (int i = 1; first.is(Op::kEnd) && i < first.num_src(); ++i) {
    if (IsThreads(first.src(i))) threads_.push_back(first.src(i));
  }
}

absl::StatusOr<UOp> Expander::End(UOp sink, UOp end) {
  if (plain_.empty()) Prepare(sink);
  return Value(end, Assignment(d_.ranges.size(), kNotHeld), 0);
}

absl::StatusOr<UOp> Expander::Run(UOp sink) {
  Prepare(sink);
  std::vector<UOp> parallel;
  const UOp first = sink.src(0);
  for (int i = 1; first.is(Op::kEnd) && i < first.num_src(); ++i) {
    if (IsParallel(first.src(i))) parallel.push_back(first.src(i));
  }
  const Assignment base(d_.ranges.size(), kNotHeld);
  std::vector<UOp> ends;
  for (int i = 0; i < sink.num_src(); ++i) {
    TG_ASSIGN_OR_RETURN(const std::vector<UOp> effects, Nest(sink.src(i), base, 0));
    for (UOp effect : effects) {
      std::vector<UOp> end{effect};
      end.insert(end.end(), parallel.begin(), parallel.end());
      ends.push_back(parallel.empty() ? effect : g_.Make(Op::kEnd, DType::kVoid, end));
    }
  }
  const UOp out = g_.Make(Op::kSink, DType::kVoid, ends);
  if (!out.valid()) return g_.status();
  return out;
}

}  // namespace

absl::StatusOr<UOp> ExpandRanges(Rewriter& b, UOp sink, const Target& target) {
  std::optional<Dependence> dependence = FindDependence(sink);
  if (!dependence) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  // Ends that reductions decide are values of their own: a RANGE stays as it is.
  Expander ends(b, *dependence, target);
  Replacements with;
  std::vector<UOp> expanded;
  for (uint32_t id : PostOrder(sink)) {
    const UOp range = b.graph()->at(id);
    if (!range.is(Op::kRange) || range.src(0).is_const()) continue;
    // It may depend on ranges whose ends are values of their own, and on what they load.
    const auto expand = [&](UOp value) -> absl::StatusOr<UOp> {
      TG_ASSIGN_OR_RETURN(const UOp made, ends.End(sink, value));
      const UOp out = Substitute(b, made, with);
      return out.valid() ? absl::StatusOr<UOp>(out) : b.graph()->status();
    };
    for (uint32_t below : PostOrder(range.src(0))) {
      const UOp load = b.graph()->at(below);
      if (!load.is(Op::kLoad) || with.contains(below)) continue;
      TG_ASSIGN_OR_RETURN(const UOp made, expand(load));
      if (made == load) continue;
      with[below] = {made, {}};
      expanded.push_back(made);
    }
    TG_ASSIGN_OR_RETURN(const UOp end, expand(range.src(0)));
    if (end == range.src(0)) continue;
    const UOp made = b.graph()->Range(range.range_id(), range.axis_type(), end);
    with[id] = {made, {made}};
    with[range.src(0).id()] = {end, {}};  // wherever else it is asked for
    expanded.push_back(end);
  }
  if (!with.empty()) {
    sink = Substitute(b, sink, with);
    if (!sink.valid()) return b.graph()->status();
    dependence = FindDependence(sink);
    if (!dependence) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  }
  return Expander(b, *std::move(dependence), target, std::move(expanded)).Run(sink);
}

}  // namespace telegrad
