#include "engine/schedule/tensor_facts.h"

namespace telegrad {

void TensorFacts::Update() {
  while (facts_.size() < graph_.size()) {
    const UOp u = graph_.at(static_cast<uint32_t>(facts_.size()));
    facts_.push_back({BitsOf(u), VariesOf(u)});
  }
}

uint8_t TensorFacts::BitsOf(UOp u) const {
  const Op op = u.op();
  if (op == Op::kConst) return kPure;
  if (op == Op::kIota) return kPure | kPlace;
  const bool passes =
      Is(op, kAlu) || Is(op, kMovement) || op == Op::kContiguous || op == Op::kDetach;
  if (!passes) return 0;
  uint8_t all = kPure, any = 0;
  for (uint32_t s : u.src_ids()) {
    all &= facts_[s].bits;
    any |= facts_[s].bits;
  }
  uint8_t bits = (all & kPure) | (any & ~kPure);
  if ((bits & kPure) == 0 && op == Op::kContiguous) return 0;
  if ((bits & kPure) != 0 && op == Op::kPad) bits |= kPlace;  // its rim
  if (IsBool(u.dtype()) && (bits & kPlace) != 0) bits |= kMask;
  return bits;
}

uint32_t TensorFacts::VariesOf(UOp u) const {
  const size_t rank = u.shape().size();
  uint32_t varies = 0;
  for (size_t d = 0; d < rank; ++d) varies |= u.shape()[d] > 1 ? uint32_t{1} << d : 0;
  const Op op = u.op();
  if (op == Op::kContiguous || op == Op::kDetach || op == Op::kFlip || op == Op::kShrink ||
      op == Op::kExpand) {
    return varies & facts_[u.src(0).id()].varies;
  }
  if (op == Op::kReshape) return ThroughReshape(u);
  if (op == Op::kPermute) {
    uint32_t permuted = 0;
    for (size_t d = 0; d < rank; ++d) {
      if (this->varies(u.src(0).id(), static_cast<size_t>(u.axes()[d]))) {
        permuted |= uint32_t{1} << d;
      }
    }
    return permuted;
  }
  if (Is(op, kAlu)) {
    uint32_t any = 0;
    for (uint32_t s : u.src_ids()) any |= facts_[s].varies;
    return varies & any;
  }
  return varies;
}

// Axes are cut into groups of equal product: a group that only repeats goes on repeating.
uint32_t TensorFacts::ThroughReshape(UOp u) const {
  const ShapeView from = u.src(0).shape(), to = u.shape();
  uint32_t out = 0;
  for (size_t i = 0, j = 0; i < from.size() || j < to.size();) {
    const size_t i0 = i, j0 = j;
    int64_t x = i < from.size() ? from[i++] : 1;
    int64_t y = j < to.size() ? to[j++] : 1;
    while (x != y && x != 0 && y != 0) {
      if (x < y) {
        x *= from[i++];
      } else {
        y *= to[j++];
      }
    }
    if (x != y) return ~uint32_t{0};  // no elements
    bool any = false;
    for (size_t k = i0; k < i; ++k) any = any || varies(u.src(0).id(), k);
    for (size_t k = j0; any && k < j; ++k) out |= to[k] > 1 ? uint32_t{1} << k : 0;
  }
  return out;
}

}  // namespace telegrad
