#include "engine/lowering/parts.h"

#include <set>
#include <utility>
#include <vector>

namespace telegrad {
namespace {

constexpr int64_t kMinPart = 8;  // iterations

}  // namespace

std::optional<ReducedPart> FindPart(const KernelShape& shape, const Work& work) {
  if (!work.is_reduce()) return std::nullopt;
  const Graph& graph = *work.root.graph();
  const std::vector<uint32_t> body = PostOrder(work.root.src(0));
  if (shape.nodes + body.size() > kMaxTiledNodes) return std::nullopt;
  // The positions up to which gates let a load happen, and from which on, by range.
  std::set<std::pair<int, int64_t>> ends, begins;
  for (uint32_t id : body) {
    const UOp index = graph.at(id);
    if (!index.is(Op::kIndex) || index.num_src() < 3) continue;
    for (uint32_t part : PostOrder(index.src(2))) {
      const UOp u = graph.at(part);
      if (!u.is(Op::kCmpLt)) continue;
      const bool ends_here = u.src(1).is_const();
      const UOp range = u.src(ends_here ? 0 : 1), bound = u.src(ends_here ? 1 : 0);
      if (!range.is(Op::kRange) || !bound.is_const()) continue;
      const int r = shape.d.IndexOf(range);
      if (r < 0 || !Has(work.own & ~shape.whole, r)) continue;
      if (bound.const_word() < 0 || bound.const_word() > shape.size[r]) continue;
      (ends_here ? ends : begins).emplace(r, bound.const_word() + (ends_here ? 0 : 1));
    }
  }
  for (const auto& [r, size] : ends) {
    if (begins.contains({r, size}) && size >= kMinPart && shape.size[r] - size >= kMinPart) {
      return ReducedPart{r, size};
    }
  }
  return std::nullopt;
}

}  // namespace telegrad
