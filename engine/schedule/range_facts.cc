#include "engine/schedule/range_facts.h"

#include <algorithm>

#include "engine/base/checked.h"

namespace telegrad {

std::optional<RangeFacts> RangeFacts::Of(UOp sink) {
  const Graph& g = *sink.graph();
  RangeFacts out;
  out.nodes_.resize(sink.id() + 1);
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (u.is(Op::kAfter) || u.is(Op::kBuffer) || u.is(Op::kVar)) return std::nullopt;
    if (u.is(Op::kRange)) {
      if (out.ranges_.size() == kMostFactRanges || !u.src(0).is_const()) return std::nullopt;
      if (u.src(0).const_word() < 1) return std::nullopt;
      out.ranges_.push_back(u);
    }
    out.Find(u);
  }
  return out;
}

int RangeFacts::IndexOf(UOp range) const {
  return static_cast<int>(std::ranges::find(ranges_, range) - ranges_.begin());
}

void RangeFacts::Find(UOp u) {
  NodeFacts& f = nodes_[u.id()];
  for (const uint32_t s : u.src_ids()) f.ranges |= nodes_[s].ranges;
  if (u.is(Op::kReduce) || u.is(Op::kEnd)) {
    for (int i = 1; i < u.num_src(); ++i) f.ranges &= ~(1u << IndexOf(u.src(i)));
  }
  if (u.is(Op::kRange)) {
    f.ranges = 1u << (ranges_.size() - 1);
    f.stride[ranges_.size() - 1] = 1;
  }
  f.linear = u.is(Op::kRange) || (u.dtype() == DType::kInt64 && AddsUp(u, &f));
}

bool RangeFacts::AddsUp(UOp u, NodeFacts* f) const {
  if (f->ranges == 0) return true;
  const auto source = [&](int i) -> const NodeFacts& { return nodes_[u.src(i).id()]; };
  const bool scaled = u.is(Op::kMul) && u.src(1).is_const();
  if (!scaled && !u.is(Op::kAdd) && !u.is(Op::kSub)) return false;
  if (!source(0).linear || (!scaled && !source(1).linear)) return false;
  for (size_t r = 0; r < kMostFactRanges; ++r) {
    const int64_t a = source(0).stride[r], b = scaled ? 0 : source(1).stride[r];
    const bool fits = scaled           ? CheckedMul(a, u.src(1).const_word(), &f->stride[r])
                      : u.is(Op::kAdd) ? CheckedAdd(a, b, &f->stride[r])
                                       : CheckedSub(a, b, &f->stride[r]);
    if (!fits) return false;
  }
  return true;
}

}  // namespace telegrad
