#include "engine/lowering/affine.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace telegrad {

int Dependence::IndexOf(UOp range) const {
  const auto it = std::ranges::find(ranges, range);
  return it == ranges.end() ? -1 : static_cast<int>(it - ranges.begin());
}

bool Dependence::Depends(UOp node, UOp range) const {
  const int i = IndexOf(range);
  return i >= 0 && (of[node.id()] >> i & 1) != 0;
}

std::optional<Dependence> FindDependence(UOp root) {
  const Graph& graph = *root.graph();
  Dependence d;
  d.of.assign(root.id() + 1, 0);
  for (uint32_t id : PostOrder(root)) {
    const UOp u = graph.at(id);
    for (uint32_t s : u.src_ids()) d.of[id] |= d.of[s];
    if (u.is(Op::kRange)) {
      if (d.ranges.size() == kMaxRanges) return std::nullopt;
      d.of[id] |= uint64_t{1} << d.ranges.size();
      d.ranges.push_back(u);
    } else if (u.is(Op::kReduce) || u.is(Op::kEnd)) {
      for (int i = 1; i < u.num_src(); ++i) {
        d.of[id] &= ~(uint64_t{1} << d.IndexOf(u.src(i)));
      }
    }
  }
  return d;
}

std::optional<int64_t> StrideOf(UOp index, UOp range) {
  const Graph& graph = *index.graph();
  absl::flat_hash_map<uint32_t, std::optional<int64_t>> stride;
  for (uint32_t id : PostOrder(index)) {
    const UOp u = graph.at(id);
    std::optional<int64_t> result;
    if (u == range) {
      result = 1;
    } else if (u.is(Op::kAdd) || u.is(Op::kSub)) {
      const auto x = stride[u.src(0).id()], y = stride[u.src(1).id()];
      if (x && y) result = u.is(Op::kAdd) ? *x + *y : *x - *y;
    } else if (u.is(Op::kMul) && u.src(1).is_const()) {
      if (const auto x = stride[u.src(0).id()]) result = *x * u.src(1).const_word();
    } else {
      const bool free = std::ranges::all_of(
          u.src_ids(), [&](uint32_t s) { return stride[s].has_value() && *stride[s] == 0; });
      if (free) result = 0;
    }
    stride[id] = result;
  }
  return stride[index.id()];
}

}  // namespace telegrad
