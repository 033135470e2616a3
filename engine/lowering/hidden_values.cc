#include "engine/lowering/hidden_values.h"

#include <algorithm>
#include <cmath>

#include "engine/ir/scalar.h"
#include "engine/lowering/mask_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr double kLowest = -0x1p127;     // a constant that is no more is low
constexpr double kLeastScale = 0x1p-64;  // by which a low number may be multiplied

// The least m with |value| <= 2^m, but at least 0, so that no product of them rounds up beyond it.
int MagnitudeOf(double value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::max(exponent, 0);
}

// A low number of at least 32 bits, in which what follows is computed.
HiddenValue CombineLow(UOp u, HiddenValue x, HiddenValue y) {
  using enum Hidden;
  const bool low_x = x.is == kLow, low_y = y.is == kLow;
  const auto added = [](const HiddenValue& low, const HiddenValue& other) {
    const bool few = low.added < HiddenValue::kMostAdded && other.bounded();
    return few ? HiddenValue{.is = kLow, .added = low.added + 1} : HiddenValue{};
  };
  const HiddenValue differs{.is = kLow, .added = HiddenValue::kMostAdded};
  switch (u.op()) {
    case Op::kCast:
      return IsFloat(u.src(0).dtype()) ? x : HiddenValue{};
    case Op::kAdd:
      if ((low_x && y.is == kMinusTop) || (low_y && x.is == kMinusTop)) return differs;
      return low_x ? added(x, y) : added(y, x);
    case Op::kSub:
      if (!low_x) return {};
      return y.is == kTop ? differs : added(x, y);
    case Op::kMul: {
      const UOp by = u.src(low_x ? 1 : 0);
      const bool scales =
          by.is_const() && ScalarAsDouble(by.dtype(), by.const_word()) >= kLeastScale;
      return {scales ? kFar : kAny};
    }
    case Op::kExp2:
      return {kZero};
    default:
      return {};
  }
}

Hidden Combine(UOp u, Hidden x, Hidden y, Hidden z) {
  using enum Hidden;
  switch (u.op()) {
    case Op::kConst: {
      if (!IsFloat(u.dtype())) return kAny;
      const double value = ScalarAsDouble(u.dtype(), u.const_word());
      if (value == 0) return kZero;
      if (value > 0 && std::isfinite(value)) return kPositive;
      if (value <= kLowest && std::isfinite(value)) return kLow;
      return IsMinusInf(u) ? kMinusInf : kAny;
    }
    case Op::kCast:
      return IsFloat(u.dtype()) && IsFloat(u.src(0).dtype()) && x != kPositive ? x : kAny;
    case Op::kNeg:
      return x == kTop ? kMinusTop : kAny;
    case Op::kSub:
      return x == kMinusInf && y == kTop ? kMinusInf : kAny;
    case Op::kAdd:
      if (x == kMinusTop) std::swap(x, y);
      return x == kMinusInf && y == kMinusTop ? kMinusInf : kAny;
    case Op::kMul:
      if (x == kPositive || x == kSum) std::swap(x, y);
      // A product of two positive numbers may be 0, or none.
      if (y == kPositive && x != kAny) return x == kPositive ? kAny : x;
      return x == kZero && y == kSum ? kZero : kAny;
    case Op::kFDiv:
      return x == kZero && (y == kSum || y == kPositive) ? kZero : kAny;
    case Op::kRecip:
      return x == kSum ? kSum : kAny;
    case Op::kExp2:
      return x == kMinusInf ? kZero : kAny;
    case Op::kWhere:  // a maximum or sum that is replaced where it would not do
      if (y == z) return y;
      if ((y == kTop && (z == kZero || z == kPositive)) || (z == kTop && y == kPositive) ||
          (z == kTop && y == kZero)) {
        return kTop;
      }
      return (y == kSum && z == kPositive) || (z == kSum && y == kPositive) ? kSum : kAny;
    default:
      return kAny;
  }
}

}  // namespace

HiddenValue FoldHidden(UOp reduce, HiddenValue body) {
  double terms = 1;
  for (int i = 1; i < reduce.num_src(); ++i) terms *= static_cast<double>(SizeOf(reduce.src(i)));
  const bool sum = reduce.reduce_kind() == ReduceKind::kAdd;
  if (!sum || !body.bounded() || ByteSize(reduce.dtype()) < 4) return {};
  return {Hidden::kBounded, body.magnitude + MagnitudeOf(terms)};
}

HiddenValue CombineHidden(Rewriter& b, UOp u, HiddenValue x, HiddenValue y, HiddenValue z,
                          std::vector<UOp>* bounded) {
  using enum Hidden;
  const bool low = x.is == kLow || y.is == kLow || z.is == kLow;
  const bool far = x.is == kFar || y.is == kFar || z.is == kFar;
  if (low || far) {
    if (!IsFloat(u.dtype()) || ByteSize(u.dtype()) < 4) return {};
    if (far) return {x.is == kFar && u.is(Op::kExp2) ? kZero : kAny};
    return CombineLow(u, x, y);
  }
  const Hidden known = Combine(u, x.is, y.is, z.is);
  if (u.is(Op::kConst) && IsFloat(u.dtype())) {
    if (known == kLow) return {ByteSize(u.dtype()) < 4 ? kAny : kLow};
    const double value = ScalarAsDouble(u.dtype(), u.const_word());
    if (!std::isfinite(value)) return {known};
    return {known == kAny ? kBounded : known, MagnitudeOf(value)};
  }
  // Of constants, and of a choice of two.
  if (known == kPositive) return {kPositive, std::max(y.magnitude, z.magnitude)};
  if (known != kAny && known != kBounded) return {known};
  const bool wide = IsFloat(u.dtype()) && ByteSize(u.dtype()) >= 4;
  switch (u.op()) {
    case Op::kCast: {
      const UOp from = u.src(0);
      if (!wide) return {};
      if (IsFloat(from.dtype())) return x;
      const bool few = IsInt(from.dtype()) && from.bounds().known() &&
                       from.vmin() > -kBoundedArgument && from.vmax() < kBoundedArgument;
      return few ? HiddenValue{kBounded, kArgumentMagnitude} : HiddenValue{};
    }
    case Op::kNeg:
      return x.bounded() ? HiddenValue{kBounded, x.magnitude} : HiddenValue{};
    case Op::kAdd:
    case Op::kSub:
    case Op::kMax: {
      if (x.is == kMinusInf && y.bounded() && !u.is(Op::kMax)) return {kMinusInf};
      if (y.is == kMinusInf && x.bounded() && u.is(Op::kAdd)) return {kMinusInf};
      if (!wide || !x.bounded() || !y.bounded()) return {};
      if (x.is == kZero && y.is == kZero) return {kZero};
      const int most = std::max(x.magnitude, y.magnitude);
      return {kBounded, u.is(Op::kMax) ? most : most + 1};
    }
    case Op::kMul:
      if (!wide || !x.bounded() || !y.bounded()) return {};
      if (x.is == kZero || y.is == kZero) return {kZero};
      return {kBounded, x.magnitude + y.magnitude};
    case Op::kFDiv:
      if (!wide || !x.bounded() || !y.bounded()) return {};
      bounded->push_back(b.Make(Op::kRecip, {u.src(1)}));
      if (x.is == kZero) return {kZero};
      return {kBounded, x.magnitude + kArgumentMagnitude};
    case Op::kRecip:
      if (!wide || !x.bounded()) return {};
      bounded->push_back(u);
      return {kBounded, kArgumentMagnitude};
    case Op::kWhere:
      if (!y.bounded() || !z.bounded()) return {};
      return {kBounded, std::max(y.magnitude, z.magnitude)};
    default:
      return {};
  }
}

}  // namespace telegrad
