#include "engine/lowering/barrier_order.h"

#include <algorithm>

#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

bool IsBarrierOfWorkgroup(UOp u) {
  return u.is(Op::kBarrier) && (u.arg(0) == static_cast<int64_t>(Scope::kWorkgroup) ||
                                u.arg(0) == static_cast<int64_t>(Scope::kCluster));
}

bool IsRangeOfThreads(UOp u) {
  return u.is(Op::kRange) && (IsType(u, AxisType::kLocal) || IsType(u, AxisType::kWarp));
}

bool IsRangeOfLaunch(UOp u) {
  return u.is(Op::kRange) && (IsType(u, AxisType::kGroup) || IsType(u, AxisType::kThread));
}

}  // namespace

BarrierOrder::BarrierOrder(const Program& program)
    : program_(program), around_(program.order.size(), 0), reached_(program.order.size()) {
  const Graph& g = *program.graph;
  NodeMap<bool> differs(g, false);  // among the threads of a workgroup, or may
  std::vector<size_t> open;
  std::vector<bool> has_barrier;  // of the open loops
  for (size_t i = 0; i < program.order.size(); ++i) {
    const UOp u = g.at(program.order[i]);
    differs[u] = IsRangeOfThreads(u) || u.is(Op::kLoad) || u.is(Op::kShuffle) || u.is(Op::kMma) ||
                 u.is(Op::kLoadMatrix) || u.is(Op::kIota) ||
                 std::ranges::any_of(u.src_ids(), [&](uint32_t s) { return differs.at(s); });
    known_ &= !u.is(Op::kRole) && !u.is(Op::kMBarrier);
    if (u.is(Op::kRange) && !IsRangeOfThreads(u) && !IsRangeOfLaunch(u)) {
      open.push_back(i);
      has_barrier.push_back(false);
    } else if (IsBarrierOfWorkgroup(u)) {
      has_barrier.assign(has_barrier.size(), true);
    } else if (u.is(Op::kEnd) && !open.empty() && u.src_ids()[0] == program.order[open.back()]) {
      const UOp range = u.src(0);
      known_ &= !has_barrier.back() || !differs.at(range.src(0).id());
      around_[open.back()] = i + 1;
      around_[i] = open.back() + 1;
      open.pop_back();
      has_barrier.pop_back();
    }
  }
  known_ &= open.empty();
}

const std::vector<bool>& BarrierOrder::ReachedFrom(size_t position) {
  std::vector<bool>& reached = reached_[position];
  if (!reached.empty()) return reached;
  reached.assign(program_.order.size() + 1, false);
  std::vector<size_t> stack;
  const auto go = [&](size_t to) {
    if (!reached[to]) stack.push_back(to);
    reached[to] = true;
  };
  go(position + 1);
  while (!stack.empty()) {
    const size_t at = stack.back();
    stack.pop_back();
    if (at == program_.order.size()) continue;
    const UOp u = program_.graph->at(program_.order[at]);
    if (IsBarrierOfWorkgroup(u)) continue;
    go(at + 1);
    const bool whole = u.is(Op::kRange) && u.src(0).is_const() && u.src(0).const_word() > 0;
    if (around_[at] != 0 && !whole) go(around_[at]);
  }
  return reached;
}

bool BarrierOrder::Separates(size_t a, size_t b) {
  return known_ && a != b && !ReachedFrom(a)[b] && !ReachedFrom(b)[a];
}

}  // namespace telegrad
