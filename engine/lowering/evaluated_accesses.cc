#include "engine/lowering/evaluated_accesses.h"

#include <algorithm>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int64_t kMostExecutions = int64_t{1} << 16;  // of an access
constexpr int64_t kMostWork = int64_t{1} << 20;        // executions of all accesses
constexpr size_t kMostNodes = 256;
constexpr int64_t kMostWidth = 64;
constexpr int64_t kMostIterations = int64_t{1} << 20;  // that two executions may be in
constexpr int64_t kMostLess = 16;

int64_t Lanes(UOp u) { return u.shape().empty() ? 1 : NumElements(u.shape()); }

bool CanEvaluate(UOp u) {
  if (!IsSigned(u.dtype()) && !IsBool(u.dtype())) return false;
  switch (u.op()) {
    case Op::kConst:
    case Op::kIota:
    case Op::kAdd:
    case Op::kMul:
    case Op::kMax:
    case Op::kXor:
    case Op::kAnd:
    case Op::kCmpLt:
    case Op::kCmpEq:
    case Op::kCast:
      return true;
    case Op::kRange:
      return true;
    default:
      return IsDivision(u);
  }
}

// As the type holds it.
int64_t Wrapped(DType dtype, uint64_t x) {
  if (IsBool(dtype)) return static_cast<int64_t>(x & 1);
  const int unused = 64 - Info(dtype).bits;
  return static_cast<int64_t>(x << unused) >> unused;
}

}  // namespace

bool EvaluatedAccesses::Read(UOp u, Nodes* nodes) const {
  absl::flat_hash_set<uint32_t> seen;
  for (const UOp known : nodes->order) seen.insert(known.id());
  std::vector<UOp> order;
  std::vector<std::pair<UOp, bool>> stack{{u, false}};
  while (!stack.empty()) {
    const auto [at, ready] = stack.back();
    stack.pop_back();
    if (ready) {
      order.push_back(at);
      continue;
    }
    if (!seen.insert(at.id()).second) continue;
    if (!CanEvaluate(at) || seen.size() > kMostNodes) return false;
    stack.emplace_back(at, true);
    if (at.is(Op::kRange)) continue;
    for (const uint32_t s : at.src_ids()) stack.emplace_back(g_.at(s), false);
  }
  nodes->order.insert(nodes->order.end(), order.begin(), order.end());
  return true;
}

void EvaluatedAccesses::Evaluate(std::span<const UOp> nodes, int64_t lane,
                                 NodeMap<int64_t>* values) {
  for (const UOp u : nodes) {
    if (u.is(Op::kRange)) continue;  // given
    const auto at = [&](int i) { return (*values)[u.src(i)]; };
    const auto bits = [&](int i) { return static_cast<uint64_t>(at(i)); };
    uint64_t value = 0;
    if (u.is_const()) {
      value = static_cast<uint64_t>(u.const_word());
    } else if (u.is(Op::kIota)) {
      value = static_cast<uint64_t>(lane);
    } else if (u.is(Op::kAdd)) {
      value = bits(0) + bits(1);
    } else if (u.is(Op::kMul)) {
      value = bits(0) * bits(1);
    } else if (u.is(Op::kMax)) {
      value = static_cast<uint64_t>(std::max(at(0), at(1)));
    } else if (u.is(Op::kXor)) {
      value = bits(0) ^ bits(1);
    } else if (u.is(Op::kAnd)) {
      value = bits(0) & bits(1);
    } else if (u.is(Op::kCmpLt)) {
      value = at(0) < at(1) ? 1 : 0;
    } else if (u.is(Op::kCmpEq)) {
      value = at(0) == at(1) ? 1 : 0;
    } else if (u.is(Op::kCast)) {
      value = IsBool(u.dtype()) && at(0) != 0 ? 1 : bits(0);
    } else {
      const int64_t by = at(1), rest = (at(0) % by + by) % by;
      value = static_cast<uint64_t>(u.is(Op::kFloorMod) ? rest : (at(0) - rest) / by);
    }
    (*values)[u] = Wrapped(u.dtype(), value);
  }
}

const EvaluatedAccesses::Touched& EvaluatedAccesses::Of(const Access& access, const Own& own,
                                                        int64_t together) {
  const UOp address = access.address;
  std::vector<int64_t> key{address.id(), access.width};
  for (const auto* list : {&own.less, &own.at}) {
    key.push_back(std::ssize(*list));
    for (const auto& [range, number] : *list) key.insert(key.end(), {range.id(), number});
  }
  for (const UOp u : own.any) key.push_back(u.id());
  const auto [it, first] = touched_.try_emplace(std::move(key));
  Touched& out = it->second;
  if (!first || access.width > kMostWidth || !NodesOf(address).known) return out;
  const std::vector<UOp>& nodes = NodesOf(address).order;
  // A thread's range that the address does not depend on tells threads apart all the same.
  std::vector<UOp> ranges;
  const auto add = [&](UOp u) {
    if (u.is(Op::kRange) && std::ranges::count(ranges, u) == 0) ranges.push_back(u);
  };
  for (const UOp u : parallel_) {
    if (std::ranges::count(own.any, u) == 0) add(u);
  }
  int64_t iterations = 1;
  for (const auto& [u, less] : own.less) {
    add(u);
    if (std::abs(less) > kMostLess ||
        __builtin_mul_overflow(iterations, SizeOf(u) + 2 * kMostLess, &iterations) ||
        iterations > kMostIterations) {
      return out;
    }
  }
  for (const UOp u : nodes) add(u);
  const int64_t lanes = std::max(Lanes(address.src(1)), Lanes(address.src(address.num_src() - 1)));
  int64_t executions = lanes * access.width;
  for (const UOp r : ranges) {
    if (__builtin_mul_overflow(executions, SizeOf(r), &executions) ||
        executions > kMostExecutions) {
      return out;
    }
  }
  for (const UOp u : nodes) {
    if (u.is(Op::kIota) && u.shape()[0] != lanes) return out;
  }
  if (work_ + executions > kMostWork) return out;
  work_ += executions;
  out.known = true;
  NodeMap<int64_t> values(g_, 0);
  for (int64_t n = 0; n < executions / access.width; ++n) {
    int64_t rest = n / lanes, thread = 0, iteration = 0;
    for (const UOp r : ranges) {
      values[r] = rest % SizeOf(r);
      rest /= SizeOf(r);
      const bool apart =
          std::ranges::none_of(own.less, [&](const auto& l) { return l.first == r; });
      if (apart && std::ranges::count(parallel_, r) > 0) thread = thread * SizeOf(r) + values[r];
    }
    for (const auto& [r, less] : own.less) {
      iteration = iteration * (SizeOf(r) + 2 * kMostLess) + values[r] - less + kMostLess;
    }
    if (std::ranges::any_of(own.at,
                            [&](const auto& at) { return values[at.first] != at.second; })) {
      continue;
    }
    Evaluate(nodes, n % lanes, &values);
    if (NodesOf(address).gated && values[address.src(2)] == 0) continue;
    const int64_t element = values[address.src(1)];
    if (element < 0 || element > (int64_t{1} << 40)) {
      out.known = false;  // the bounds proof has it
      return out;
    }
    for (int64_t i = 0; i < access.width; ++i) {
      const int64_t place = (element + i) / together * kMostIterations + iteration;
      const auto [at, is_first] = out.thread.try_emplace(place, thread);
      if (!is_first && at->second != thread) at->second = kSeveral;
    }
  }
  return out;
}

const EvaluatedAccesses::Nodes& EvaluatedAccesses::NodesOf(UOp address) {
  std::unique_ptr<Nodes>& nodes = nodes_[address.id()];
  if (nodes == nullptr) {
    nodes = std::make_unique<Nodes>();
    nodes->known = Read(address.src(1), nodes.get());
    nodes->gated = nodes->known && address.num_src() == 3 && Read(address.src(2), nodes.get());
  }
  return *nodes;
}

bool EvaluatedAccesses::Apart(const Access& a, const Access& b, const Iterations& iterations,
                              int64_t together, bool any_thread) {
  // What decides on neither address need not be told apart.
  const auto of = [&](const Access& access, UOp range) {
    return std::ranges::count(NodesOf(access.address).order, range) > 0;
  };
  Own of_a, of_b;
  for (const auto& [range, by] : iterations.later) {
    if (of(a, range) || of(b, range)) {
      of_a.less.emplace_back(range, 0);
      of_b.less.emplace_back(range, by);
    } else {
      of_a.any.push_back(range);
      of_b.any.push_back(range);
    }
  }
  for (const auto& at : iterations.of_a) {
    if (of(a, at.first)) of_a.at.push_back(at);
  }
  for (const auto& at : iterations.of_b) {
    if (of(b, at.first)) of_b.at.push_back(at);
  }
  const Touched& x = Of(a, of_a, together);
  const Touched& y = Of(b, of_b, together);
  if (!x.known || !y.known) return false;
  return std::ranges::all_of(x.thread, [&](const auto& touched) {
    const auto at = y.thread.find(touched.first);
    return at == y.thread.end() ||
           (!any_thread && touched.second != kSeveral && at->second == touched.second);
  });
}

}  // namespace telegrad
