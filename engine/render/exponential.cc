#include "engine/render/exponential.h"

#include "engine/render/float_range.h"

namespace telegrad {
namespace {

bool IsNumber(UOp u, double number) {
  return u.is_const() && (IsFloat(u.dtype()) ? ScalarAsDouble(u.dtype(), u.const_word())
                                             : static_cast<double>(u.const_word())) == number;
}

// k, if `u` is 2^k as its bits: BITCAST((k + 127) << 23).
UOp ExponentOf(UOp u) {
  if (!u.is(Op::kBitcast) || u.dtype() != DType::kFloat32) return {};
  const UOp bits = u.src(0);
  if (!bits.is(Op::kShl) || !IsNumber(bits.src(1), 23)) return {};
  const UOp biased = bits.src(0);
  return biased.is(Op::kAdd) && IsNumber(biased.src(1), 127) ? biased.src(0) : UOp();
}

// Whether the i32 `rest` is n - half.
bool IsRest(UOp rest, UOp n, UOp half) {
  if (rest.is(Op::kSub)) return rest.src(0) == n && rest.src(1) == half;
  if (!rest.is(Op::kAdd) || rest.src(0) != n) return false;
  const UOp less = rest.src(1);
  return less.is(Op::kMul) && less.src(0) == half && IsNumber(less.src(1), -1);
}

// Whether `value` is 1 + (v - w) * q, and `whole`, w, the integer nearest to v and at most 128:
// then v is finite where w is below that, and so is the value.
bool IsOfFraction(UOp value, UOp whole) {
  if (!value.is(Op::kMulAcc) || !IsNumber(value.src(2), 1)) return false;
  const UOp fraction = value.src(0);
  if (!fraction.is(Op::kSub) || fraction.src(1) != whole || !whole.is(Op::kWhere)) return false;
  const UOp rounded = whole.src(1), below = whole.src(0);
  if (!below.is(Op::kCmpLt) || below.src(0) != rounded || !rounded.is(Op::kFloor)) return false;
  const UOp sum = rounded.src(0);
  return sum.is(Op::kAdd) && sum.src(0) == fraction.src(0) && IsNumber(sum.src(1), 0.5);
}

// `first` and `second` are the factors 2^half and 2^(n - half).
PowerOfTwo PowerOf(UOp value, UOp first, UOp second) {
  const UOp half = ExponentOf(first), rest = ExponentOf(second);
  if (!half.valid() || !rest.valid() || !half.is(Op::kShr) || !IsNumber(half.src(1), 1)) return {};
  const UOp n = half.src(0);
  if (!n.is(Op::kCast) || n.src(0).dtype() != DType::kFloat32 || !IsRest(rest, n, half)) return {};
  const FloatRange range = RangeOf(n.src(0));
  const bool fits = range.lo >= -254 && range.hi <= 128 && !range.nan;
  return fits && IsOfFraction(value, n.src(0)) ? PowerOfTwo{value, n.src(0)} : PowerOfTwo{};
}

}  // namespace

PowerOfTwo PowerOf(UOp product) {
  if (!product.is(Op::kMul) || product.dtype() != DType::kFloat32) return {};
  for (const int outer : {0, 1}) {
    const UOp inner = product.src(1 - outer);
    if (!inner.is(Op::kMul)) continue;
    for (const int factor : {0, 1}) {
      const PowerOfTwo power =
          PowerOf(inner.src(1 - factor), inner.src(factor), product.src(outer));
      if (power.valid()) return power;
    }
  }
  return {};
}

}  // namespace telegrad
