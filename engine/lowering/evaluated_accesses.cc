#include "engine/lowering/evaluated_accesses.h"

#include <algorithm>

#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int64_t kMostExecutions = int64_t{1} << 16;  // of an access
constexpr int64_t kMostWork = int64_t{1} << 20;        // executions of all accesses
constexpr size_t kMostNodes = 256;

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
      return u.src(0).is_const();
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

bool EvaluatedAccesses::Read(UOp address, std::vector<UOp>* nodes) const {
  absl::flat_hash_map<uint32_t, bool> seen;
  std::vector<std::pair<UOp, bool>> stack;
  for (int i = address.num_src() - 1; i > 0; --i) stack.emplace_back(address.src(i), false);
  while (!stack.empty()) {
    const auto [u, ready] = stack.back();
    stack.pop_back();
    if (ready) {
      nodes->push_back(u);
      continue;
    }
    if (!seen.try_emplace(u.id(), true).second) continue;
    if (!CanEvaluate(u) || seen.size() > kMostNodes) return false;
    stack.emplace_back(u, true);
    if (u.is(Op::kRange)) continue;
    for (const uint32_t s : u.src_ids()) stack.emplace_back(g_.at(s), false);
  }
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

const EvaluatedAccesses::Touched& EvaluatedAccesses::Of(UOp address, const std::vector<UOp>& same,
                                                        int64_t together) {
  std::pair<uint32_t, std::vector<uint32_t>> key{address.id(), {}};
  for (const UOp u : same) key.second.push_back(u.id());
  const auto [it, first] = touched_.try_emplace(std::move(key));
  Touched& out = it->second;
  std::vector<UOp> nodes;
  if (!first || !Read(address, &nodes)) return out;
  // A thread's range that the address does not depend on tells threads apart all the same.
  std::vector<UOp> ranges = parallel_;
  for (const std::vector<UOp>* more :
       std::initializer_list<const std::vector<UOp>*>{&same, &nodes}) {
    for (const UOp u : *more) {
      if (u.is(Op::kRange) && std::ranges::count(ranges, u) == 0) ranges.push_back(u);
    }
  }
  const int64_t lanes = std::max(Lanes(address.src(1)), Lanes(address.src(address.num_src() - 1)));
  int64_t executions = lanes;
  for (const UOp r : ranges) {
    if (!r.src(0).is_const() || __builtin_mul_overflow(executions, SizeOf(r), &executions) ||
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
  for (int64_t n = 0; n < executions; ++n) {
    int64_t rest = n / lanes, thread = 0, iteration = 0;
    for (const UOp r : ranges) {
      const int64_t size = SizeOf(r);
      values[r] = rest % size;
      rest /= size;
      if (std::ranges::count(same, r) > 0) {
        iteration = iteration * size + values[r];
      } else if (std::ranges::count(parallel_, r) > 0) {
        thread = thread * size + values[r];
      }
    }
    Evaluate(nodes, n % lanes, &values);
    if (address.num_src() == 3 && values[address.src(2)] == 0) continue;
    const int64_t element = values[address.src(1)];
    if (element < 0 || element > (int64_t{1} << 40)) {
      out.known = false;  // the bounds proof has it
      return out;
    }
    const int64_t place = element / together * kMostExecutions + iteration;
    const auto [at, is_first] = out.thread.try_emplace(place, thread);
    if (!is_first && at->second != thread) at->second = kSeveral;
  }
  return out;
}

bool EvaluatedAccesses::Apart(UOp a, UOp b, const std::vector<UOp>& same, int64_t together) {
  const Touched& x = Of(a, same, together);
  const Touched& y = Of(b, same, together);
  if (!x.known || !y.known) return false;
  return std::ranges::all_of(x.thread, [&](const auto& touched) {
    const auto at = y.thread.find(touched.first);
    return at == y.thread.end() || (touched.second != kSeveral && at->second == touched.second);
  });
}

}  // namespace telegrad
