#include "engine/lowering/lane_index.h"

namespace telegrad {
namespace {

constexpr int kMaxSummands = 256;  // ways through a sum

// The conditions of a conjunction that are the same for every lane; invalid if there are none.
UOp SharedByLanes(Rewriter& b, UOp gate) {
  UOp shared;
  std::vector<UOp> stack{gate};
  for (int seen = 0; !stack.empty() && seen < kMaxSummands; ++seen) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.shape().empty()) {
      shared = shared.valid() ? b.Make(Op::kAnd, {shared, u}) : u;
    } else if (u.is(Op::kAnd)) {
      stack.push_back(u.src(1));
      stack.push_back(u.src(0));
    }
  }
  return shared;
}

UOp NormalIndex(Rewriter& b, UOp index) {
  if (index.shape().empty()) return index;
  Graph& g = *b.graph();
  UOp scalar = g.Index(0), vector;
  std::vector<UOp> stack{index};
  for (int seen = 0; !stack.empty(); ++seen) {
    // Sums that share terms have more ways to them than nodes; such an index stays as it is.
    if (seen == kMaxSummands) return index;
    const UOp u = stack.back();
    stack.pop_back();
    if (u.shape().empty()) {
      scalar = b.Make(Op::kAdd, {scalar, u});
    } else if (u.is(Op::kAdd)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else {
      vector = vector.valid() ? b.Make(Op::kAdd, {vector, u}) : u;
    }
  }
  if (scalar.is_const() && scalar.const_word() == 0) return vector;
  return g.Make(Op::kAdd, {scalar, vector});  // not through the rules, which would reorder it
}

}  // namespace

void NormalizeAddress(Rewriter& b, std::vector<UOp>* src) {
  UOp& index = (*src)[1];
  index = NormalIndex(b, index);
  if (src->size() < 3) return;
  UOp& gate = (*src)[2];
  const bool by_lanes =
      index.valid() && gate.valid() && index.shape().empty() && !gate.shape().empty();
  if (by_lanes) gate = SharedByLanes(b, gate);
  if (!gate.valid() || (gate.is_const() && gate.const_word() == 1)) src->pop_back();
}

}  // namespace telegrad
