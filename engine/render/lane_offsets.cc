// An index is a sum; each summand is a scalar, or the same in every run: it is made of lane numbers
// and constants, and then it is computed here.
#include "engine/render/lane_offsets.h"

#include <algorithm>
#include <utility>

#include "engine/base/checked.h"
#include "engine/ir/scalar.h"
#include "engine/render/alu_facts.h"
#include "engine/rules/fold.h"

namespace telegrad {
namespace {

constexpr int kMaxSteps = 256;  // nodes looked at for one index
constexpr int kMaxDepth = 32;
constexpr int64_t kMaxDivisor = int64_t{1} << 30;

int64_t Wrapped(uint64_t value) { return static_cast<int64_t>(value); }
int64_t Add(int64_t a, int64_t b) { return Wrapped(uint64_t(a) + uint64_t(b)); }
int64_t Mul(int64_t a, int64_t b) { return Wrapped(uint64_t(a) * uint64_t(b)); }

int64_t LanesOf(UOp u) { return u.shape().empty() ? 1 : u.shape()[0]; }

int64_t PowerOfTwoIn(int64_t value) {
  return value == 0 ? kMaxDivisor : std::min(value & Wrapped(-uint64_t(value)), kMaxDivisor);
}

// Lanes of a sum or product narrower than 64 bits are so far apart in memory as they say only if it
// does not wrap. In 64 bits addresses wrap along with it.
bool SplitsExactly(UOp u) { return Info(u.dtype()).bits == 64 || IsExact(u); }

// The words of the lanes, one where all are equal; empty where they depend on anything.
std::vector<int64_t> ConstantLanes(UOp u, int depth, int* steps) {
  if (++*steps > kMaxSteps || depth > kMaxDepth) return {};
  if (u.is_const()) return {u.const_word()};
  if (u.is(Op::kExpand) || u.is(Op::kReshape)) return ConstantLanes(u.src(0), depth + 1, steps);
  const int64_t lanes = LanesOf(u);
  std::vector<int64_t> words(lanes);
  if (u.is(Op::kIota)) {
    for (int64_t i = 0; i < lanes; ++i) words[i] = ScalarFromInt(u.dtype(), i);
    return words;
  }
  if (!Is(u.op(), kAlu)) return {};
  std::vector<std::vector<int64_t>> sources;
  std::vector<DType> types;
  for (int s = 0; s < u.num_src(); ++s) {
    sources.push_back(ConstantLanes(u.src(s), depth + 1, steps));
    types.push_back(u.src(s).dtype());
    if (sources.back().empty()) return {};
  }
  std::vector<int64_t> operands(sources.size());
  for (int64_t i = 0; i < lanes; ++i) {
    for (size_t s = 0; s < sources.size(); ++s) {
      operands[s] = sources[s].size() == 1 ? sources[s][0] : sources[s][i];
    }
    const auto word = Fold(u.op(), u.dtype(), types, operands);
    if (!word) return {};
    words[i] = *word;
  }
  return words;
}

// The constant factor of a product, and the other one; or a factor of 0.
std::pair<UOp, int64_t> ConstantFactor(UOp product) {
  for (int s : {0, 1}) {
    if (product.src(s).is_const()) return {product.src(1 - s), product.src(s).const_word()};
  }
  return {product, 0};
}

int64_t DivisorWithin(UOp u, int* steps) {
  if (++*steps > kMaxSteps) return 1;
  if (u.bounds().constant()) return PowerOfTwoIn(u.vmin());
  const auto of = [&](int s) { return DivisorWithin(u.src(s), steps); };
  switch (u.op()) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMax:
      return std::min(of(0), of(1));
    case Op::kMul:
      return std::min(of(0) * of(1), kMaxDivisor);
    case Op::kAnd:
      return std::max(of(0), of(1));
    case Op::kFloorMod:
      return u.src(1).is_const() ? std::min(of(0), PowerOfTwoIn(u.src(1).const_word())) : 1;
    case Op::kShl:
      if (u.src(1).is_const() && u.src(1).const_word() >= 0 && u.src(1).const_word() < 30) {
        return std::min(of(0) << u.src(1).const_word(), kMaxDivisor);
      }
      return 1;
    case Op::kWhere:
      return std::min(of(1), of(2));
    case Op::kCast:
      return IsInt(u.src(0).dtype()) ? of(0) : 1;  // wrapping and extending keep the low bits
    default:
      return 1;
  }
}

}  // namespace

int64_t LaneOffsets::Stride() const {
  if (lanes.size() < 2) return 0;
  for (size_t i = 1; i < lanes.size(); ++i) {
    if (lanes[i] != Mul(lanes[1], static_cast<int64_t>(i))) return 0;
  }
  return lanes[1];
}

std::vector<int64_t> LaneOffsets::Divisors() const {
  int64_t common = kMaxDivisor;
  for (const Term& term : terms) {
    common = std::min(common, DivisorOf(term.scalar) * PowerOfTwoIn(term.factor));
  }
  std::vector<int64_t> divisors;
  for (int64_t lane : lanes) {
    divisors.push_back(std::min(common, PowerOfTwoIn(Add(constant, lane))));
  }
  return divisors;
}

std::optional<Interval> LaneOffsets::NarrowSum() const {
  Interval sum{0, 0};
  for (const Term& term : terms) {
    int64_t low, high;
    if (term.scalar.dtype() != DType::kInt32 ||
        !CheckedMul(term.factor, term.scalar.vmin(), &low) ||
        !CheckedMul(term.factor, term.scalar.vmax(), &high)) {
      return std::nullopt;
    }
    const Interval product{std::min(low, high), std::max(low, high)};
    const auto fits = [](const Interval& x) { return x.lo >= INT32_MIN && x.hi <= INT32_MAX; };
    if (!fits(product) || term.factor < INT32_MIN || term.factor > INT32_MAX) return std::nullopt;
    sum = {sum.lo + product.lo, sum.hi + product.hi};
    if (!fits(sum)) return std::nullopt;
  }
  return sum;
}

std::optional<LaneOffsets> SplitLanes(UOp index) {
  LaneOffsets out;
  out.lanes.assign(LanesOf(index), 0);
  std::vector<std::pair<UOp, int64_t>> summands{{index, 1}};
  for (int steps = 0; !summands.empty(); ++steps) {
    if (steps > kMaxSteps) return std::nullopt;
    const auto [u, factor] = summands.back();
    summands.pop_back();
    if (u.is_const()) {
      out.constant = Add(out.constant, Mul(factor, u.const_word()));
      continue;
    }
    const bool scalar = LanesOf(u) == 1;
    if (scalar && !(u.is(Op::kAdd) && u.src(1).is_const() && SplitsExactly(u))) {
      out.terms.push_back({u, factor});
      continue;
    }
    if (u.is(Op::kExpand) || u.is(Op::kReshape)) {
      summands.emplace_back(u.src(0), factor);
      continue;
    }
    if (u.is(Op::kAdd) && SplitsExactly(u)) {
      summands.emplace_back(u.src(1), factor);
      summands.emplace_back(u.src(0), factor);
      continue;
    }
    if (u.is(Op::kSub) && SplitsExactly(u)) {
      summands.emplace_back(u.src(1), Mul(factor, -1));
      summands.emplace_back(u.src(0), factor);
      continue;
    }
    if (u.is(Op::kMul) && SplitsExactly(u)) {
      if (const auto [other, by] = ConstantFactor(u); by != 0) {
        summands.emplace_back(other, Mul(factor, by));
        continue;
      }
    }
    const std::vector<int64_t> words = ConstantLanes(u, 0, &steps);
    if (words.empty()) return std::nullopt;
    for (size_t i = 0; i < out.lanes.size(); ++i) {
      out.lanes[i] = Add(out.lanes[i], Mul(factor, words.size() == 1 ? words[0] : words[i]));
    }
  }
  const int64_t first = out.lanes[0];
  out.constant = Add(out.constant, first);
  for (int64_t& lane : out.lanes) lane = Add(lane, -first);
  return out;
}

int64_t DivisorOf(UOp scalar) {
  int steps = 0;
  return DivisorWithin(scalar, &steps);
}

}  // namespace telegrad
