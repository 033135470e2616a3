// A node has a narrow form where the bounds of its value, and of all that it is computed from, lie
// within i32: then nothing wraps in either width, and both have the same value. Where a value fits
// but what it is computed from does not, as a remainder of what was loaded, it is computed in i64
// and cast. Every node is made twice, as it was and narrow if possible; an INDEX takes the narrow
// ones, and what is stored takes those of its own type.
#include "engine/lowering/narrow_indices.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/lowering/bounds_proof.h"

namespace telegrad {
namespace {

constexpr DType kNarrow = DType::kInt32;

// Whether every value of `u` is one of i32.
bool Fits(UOp u) { return u.vmin() >= INT32_MIN && u.vmax() <= INT32_MAX; }

// Ops that compute the same in every width that operands and result fit into.
bool IsSameInEveryWidth(Op op) {
  switch (op) {
    case Op::kIota:
    case Op::kReshape:
    case Op::kExpand:
    case Op::kNeg:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kMax:
    case Op::kFloorDiv:
    case Op::kFloorMod:
    case Op::kCDiv:
    case Op::kCMod:
    case Op::kShr:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kWhere:
    case Op::kCmpLt:
    case Op::kCmpEq:
    case Op::kCmpNe:
      return true;
    default:
      return false;
  }
}

// Whether source `i` of `u` names a range: it is no value there.
bool NamesRange(UOp u, int i) {
  const bool orders = u.is(Op::kBarrier) || u.is(Op::kRole);
  const bool closes = u.is(Op::kEnd) || u.is(Op::kReduce) || u.is(Op::kAfter);
  return (orders || (closes && i > 0)) && u.src(i).is(Op::kRange);
}

class Narrower {
 public:
  // `wide`: INDEX nodes that keep their indices.
  Narrower(Graph* graph, const absl::flat_hash_set<uint32_t>& wide)
      : g_(*graph), wide_(wide), same_(g_), narrow_(g_), named_(g_), used_(g_, false) {}

  UOp Run(UOp root) {
    std::vector<uint32_t> order = PostOrder(root);
    std::ranges::sort(order);  // the order of ids is visible in programs
    for (size_t i = order.size(); i-- > 0;) FindUses(g_.at(order[i]));
    for (const uint32_t id : order) {
      const UOp u = g_.at(id);
      same_[id] = Same(u);
      if (used_[id]) narrow_[id] = Narrow(u);
      if (!g_.status().ok()) return {};
    }
    return same_[root];
  }

  // What the INDEX nodes with this copy were.
  const std::vector<uint32_t>& IndexesOf(UOp copy) const { return made_from_.at(copy.id()); }

 private:
  // The range of a processor's threads is counted by the run, in i64.
  static bool IsNarrowRange(UOp u) {
    return u.is(Op::kRange) && u.dtype() == DType::kInt64 && Fits(u) && Fits(u.src(0)) &&
           u.axis_type() != AxisType::kThread;
  }

  // Whether the copy of `u` has the narrow form of source `i` where there is one. What is computed
  // in i64, or a condition of such, has not: the proof compares them with indices that stay i64.
  bool TakesNarrow(UOp u, int i) const {
    const DType from = u.src(i).dtype();
    if (u.is(Op::kIndex)) return i > 0 && !wide_.contains(u.id());
    if (u.dtype() == DType::kInt64 || IsBool(u.dtype())) return false;
    return IsBool(from) || (u.is(Op::kCast) && from == DType::kInt64);
  }

  void FindUses(UOp u) {
    const bool narrow = used_[u] && IsSameInEveryWidth(u.op());
    for (int i = 0; i < u.num_src(); ++i) {
      if (narrow || IsNarrowRange(u) || TakesNarrow(u, i)) used_[u.src(i)] = true;
    }
  }

  UOp Cast(DType to, UOp u) { return u.dtype() == to ? u : g_.Make(Op::kCast, to, {u}); }

  UOp Make(UOp u, DType dtype, const std::vector<UOp>& src) {
    return g_.Make(u.op(), dtype, src, std::vector<int64_t>(u.arg().begin(), u.arg().end()));
  }

  // A copy of the same type.
  UOp Same(UOp u) {
    if (IsNarrowRange(u)) {
      named_[u] = Make(u, kNarrow, {narrow_[u.src(0)]});
      return Cast(DType::kInt64, named_[u]);
    }
    std::vector<UOp> src;
    for (int i = 0; i < u.num_src(); ++i) {
      const UOp s = u.src(i);
      const UOp other = NamesRange(u, i) ? named_[s] : TakesNarrow(u, i) ? narrow_[s] : UOp();
      src.push_back(other.valid() ? other : same_[s]);
    }
    if (std::ranges::equal(src, u.src_ids(), {}, &UOp::id)) return Found(u, u);
    if (u.is(Op::kCast)) return Cast(u.dtype(), src[0]);
    return Found(u, Make(u, u.dtype(), src));
  }

  UOp Found(UOp u, UOp copy) {
    if (u.is(Op::kIndex)) made_from_[copy.id()].push_back(u.id());
    return copy;
  }

  // Of an i64 or bool; invalid where there is none.
  UOp Narrow(UOp u) {
    const UOp computed = IsSameInEveryWidth(u.op()) ? Computed(u) : UOp();
    if (IsBool(u.dtype())) return computed.valid() ? computed : same_[u];
    if (u.dtype() != DType::kInt64 || !Fits(u)) return {};
    if (u.is_const()) return g_.Const(kNarrow, u.const_word());
    if (IsNarrowRange(u)) return named_[u];
    if (u.is(Op::kCast) && IsInt(u.src(0).dtype())) return Cast(kNarrow, same_[u.src(0)]);
    return computed.valid() ? computed : Cast(kNarrow, same_[u]);
  }

  // By the op of `u`, of narrow sources; invalid where one that is an i64 has no narrow form.
  UOp Computed(UOp u) {
    if (!IsBool(u.dtype()) && (u.dtype() != DType::kInt64 || !Fits(u))) return {};
    std::vector<UOp> src;
    for (int i = 0; i < u.num_src(); ++i) {
      const UOp s = u.src(i);
      const bool changes = s.dtype() == DType::kInt64 || IsBool(s.dtype());
      src.push_back(changes ? narrow_[s] : same_[s]);
      if (!src.back().valid()) return {};
    }
    return Make(u, IsBool(u.dtype()) ? DType::kBool : kNarrow, src);
  }

  Graph& g_;
  const absl::flat_hash_set<uint32_t>& wide_;
  NodeMap<UOp> same_, narrow_;
  NodeMap<UOp> named_;  // the i32 RANGE of an i64 one
  NodeMap<bool> used_;  // the narrow form is
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> made_from_;
};

}  // namespace

absl::StatusOr<UOp> NarrowIndices(Graph* graph, UOp root, Budget* budget) {
  absl::flat_hash_set<uint32_t> wide;
  for (;;) {
    Narrower narrower(graph, wide);
    const UOp narrowed = narrower.Run(root);
    TG_RETURN_IF_ERROR(graph->status());
    TG_ASSIGN_OR_RETURN(const BoundsReport bounds,
                        ProveBounds(*graph, PostOrder(narrowed), budget));
    if (bounds.unproved.empty()) return narrowed;
    bool changed = false;
    for (const UOp copy : bounds.unproved) {
      for (const uint32_t id : narrower.IndexesOf(copy)) changed |= wide.insert(id).second;
    }
    if (!changed) return root;
  }
}

}  // namespace telegrad
