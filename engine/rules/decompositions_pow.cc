// |x|^y = 2^(y * log2 |x|), the sign and C's special cases around it.
//
// f32 computes in f64, whose errors are far below an ulp of f32. For f64 the logarithm needs about
// 10 bits more than f64 has, since the exponent is up to 1074: numbers are then sums of two floats,
// the first of which has 26 bits, so that products of first parts are exact.
//
// log |x| = k ln 2 + 2 artanh(s), s = (m - 1) / (m + 1); artanh(s) = s + s*z*(1/3 + z*Q(z)), z =
// s^2. Q is a Chebyshev interpolation, computed in 60 digits.
//
// A small integer that is a constant is a product instead, of squares: n - 1 roundings, each of
// at most an ulp of the result. Nothing overflows or vanishes on the way that would not in the end.
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/rewrite/rule.h"
#include "engine/rules/decompositions_functions.h"

namespace telegrad {
namespace {

constexpr double kQ[] = {0.19999999999999999909,  0.14285714285714683118,  0.11111111110827942678,
                         0.090909091676964289784, 0.076922974812568754987, 0.066674023470277825512,
                         0.058531181673864110341, 0.058615893333173300782};
constexpr double kThird = 0x1.5555555555555p-2, kThirdRest = 0x1.5555555555555p-56;
constexpr double kTwoLog2eHi = 0x1.715476800p+1, kTwoLog2eLo = -0x1.6a3e80f444178p-26;

struct Sum {
  Term hi, lo;
};

Term Upper(Term v) {
  return (v.Bitcast(DType::kInt64) & ~int64_t{0x7ffffff}).Bitcast(DType::kFloat64);
}

// big + small + rest as a sum; small is below big / 8, and rest far below it.
Sum Join(Term big, Term small, Term rest) {
  const Term hi = Upper(big + (small + rest));
  return {hi, ((big - hi) + small) + rest};
}

Sum Times(Sum x, Sum y) {
  const Term product = x.hi * y.hi, rest = x.hi * y.lo + x.lo * (y.hi + y.lo);
  const Term hi = Upper(product + rest);
  return {hi, (product - hi) + rest};
}

// log2 of a finite x > 0.
Sum Log2(const FunctionFormat& format, Term x) {
  const auto [m, k] = ScaleToOne(format, x);
  const Term one = x.Number(1);
  const Term below = m - one, above = m + one;
  const Term above_hi = Upper(above), above_lo = m - (above_hi - one);
  const Term quotient = Upper(below / above);
  const Sum s = {quotient, ((below - quotient * above_hi) - quotient * above_lo) / above};
  const Sum z = Times(s, s);
  const Term square = z.hi + z.lo;
  const Term third = x.Number(kThird), tail = square * Horner(square, kQ);
  const Sum factor = Join(third, tail, x.Number(kThirdRest));
  const Sum higher = Times(s, Times(z, factor));
  const Sum artanh = Join(s.hi, higher.hi, higher.lo + s.lo);
  const Sum log = Times(artanh, {x.Number(kTwoLog2eHi), x.Number(kTwoLog2eLo)});
  return Join(k, log.hi, log.lo);
}

// |x|^y in f64, for an f64 x or an f32 one.
Term Magnitude(Term x, Term y, bool single) {
  const double inf = std::numeric_limits<double>::infinity();
  // So large a y overflows or vanishes for every |x| but 1, and does not overflow on the way.
  const Term limit = y.Number(0x1p70), least = y.Number(-0x1p70);
  const Term cut = (limit < y).Select(limit, (y < least).Select(least, y));
  if (single) return (cut * x.To(Op::kLog2, DType::kFloat64)).To(Op::kExp2, DType::kFloat64);
  const FunctionFormat& format = FormatOf(DType::kFloat64);
  const Term upper = Upper(cut);
  const Sum power = Times({upper, cut - upper}, Log2(format, x));
  const Term regular = (x.Number(0) < x) & (x < x.Number(inf));
  const Term log = x.Equals(x.Number(0)).Select(x.Number(-inf), x);
  const Term exponent = regular.Select(power.hi + power.lo, cut * log);
  return PowerOfTwo(format, exponent, power.hi, power.lo);
}

constexpr double kMostFactors = 5;  // four roundings of at most an ulp of the result each

std::optional<Term> Product(Term x, const UOp& exponent) {
  if (!exponent.is_const()) return std::nullopt;
  const double n = std::bit_cast<double>(exponent.const_word());
  if (!(n >= 1 && n <= kMostFactors) || n != std::floor(n)) return std::nullopt;
  std::optional<Term> product;
  Term square = x;
  for (auto left = static_cast<unsigned>(n); left > 0; left /= 2) {
    if (left % 2 != 0) product = product ? *product * square : square;
    if (left > 1) square = square * square;
  }
  return product;
}

}  // namespace

UOp DecomposePow(Rewriter& b, const Match& m) {
  const DType dtype = m.root.dtype();
  if (const auto product = Product({&b, m.x()}, m.y())) return product->u;
  const Term x = Term{&b, m.x()}.Cast(DType::kFloat64), y = Term{&b, m.y()}.Cast(DType::kFloat64);
  const Term bits = x.Bitcast(DType::kInt64);
  const Term absolute = (bits & std::numeric_limits<int64_t>::max()).Bitcast(DType::kFloat64);
  const Term magnitude = Magnitude(absolute, y, dtype == DType::kFloat32);

  // A negative base requires an integer, which infinities are; an odd one keeps the sign.
  const Term negative = bits < bits.Word(0), whole = y.Floor().Equals(y);
  const Term half = y * y.Number(0.5);
  const Term odd = whole & half.Floor().Differs(half);
  const Term inf = x.Number(std::numeric_limits<double>::infinity());
  const Term zero = x.Number(0);
  const Term is_signed =
      (negative & odd).Select(Term{&b, b.Make(Op::kNeg, {magnitude.u})}, magnitude);
  const Term root_of_negative = (x < zero) & (absolute < inf) & whole.Equals(whole.Word(0));
  const Term nan = x.Number(std::numeric_limits<double>::quiet_NaN());
  const Term power = root_of_negative.Select(nan, is_signed);
  const Term is_one = y.Equals(zero) | x.Equals(x.Number(1));
  return is_one.Select(x.Number(1), power).Cast(dtype).u;
}

}  // namespace telegrad
