#include "engine/schedule/sign_masks.h"

#include "absl/container/flat_hash_map.h"
#include "engine/rewrite/copier.h"

namespace telegrad {
namespace {

// +0 everywhere.
bool IsZero(UOp u) {
  while (Is(u.op(), kMovement) && !u.is(Op::kPad)) u = u.src(0);
  return u.is_const() && u.const_word() == 0;
}

// The x of which it is max(x, 0), or invalid.
UOp Clipped(UOp u) {
  if (u.is(Op::kMax)) {
    if (IsZero(u.src(1))) return u.src(0);
    if (IsZero(u.src(0))) return u.src(1);
  }
  if (!u.is(Op::kWhere) || !u.src(0).is(Op::kCmpLt) || !IsZero(u.src(2))) return UOp();
  return IsZero(u.src(0).src(0)) && u.src(0).src(1) == u.src(1) ? u.src(1) : UOp();
}

bool IsMask(UOp u) { return u.is(Op::kCmpLt) && IsZero(u.src(0)) && !u.src(1).is_const(); }

}  // namespace

absl::StatusOr<FrozenGraph> MasksOfResults(FrozenGraph graph, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  absl::flat_hash_map<uint32_t, uint32_t> clipped;  // by x
  for (const uint32_t id : order) {
    const UOp x = Clipped(from.at(id));
    if (x.valid()) clipped.try_emplace(x.id(), id);
  }
  if (clipped.empty()) return graph;
  Copier copier(graph);
  Graph* const out = copier.out();
  // The mask of the result, for all but the result; invalid where there is none yet.
  const auto of_result = [&](UOp mask, uint32_t user) {
    const auto it = clipped.find(mask.src(1).id());
    if (it == clipped.end() || it->second == user) return UOp();
    const UOp result = from.at(it->second);
    for (const uint32_t s : result.src_ids()) {
      if (!copier.Made(from.at(s)).valid()) return UOp();
    }
    return out->Make(Op::kCmpLt, {copier.Made(mask.src(0)), copier.Same(result)});
  };
  std::vector<UOp> src;
  const auto with_masks = [&](UOp u) {
    src.clear();
    for (const uint32_t s : u.src_ids()) {
      const UOp other = IsMask(from.at(s)) ? of_result(from.at(s), u.id()) : UOp();
      src.push_back(other.valid() ? other : copier.Made(from.at(s)));
    }
    return MakeLike(out, u, src);
  };
  TG_ASSIGN_OR_RETURN(const FrozenGraph all, copier.Run(budget, with_masks));
  return Freeze(all.root());
}

}  // namespace telegrad
