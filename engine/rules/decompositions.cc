// exp2: x = n + f with |f| <= 1/2; 2^f = 1 + f*q(f); times 2^n in two factors, so that the last
// product is the only one that may round into the subnormal range.
//
// log2: x = m * 2^k with m in [sqrt(1/2), sqrt(2)). With f = m - 1 and s = f / (2 + f),
//   ln m = 2*artanh(s) = f - (f^2/2 - s*(f^2/2 + z*P(z))),  z = s^2,
// where z*P(z) = ln((1+s)/(1-s))/s - 2. The leading part is cut to half the mantissa, so that its
// product with the upper half of 1/ln 2 is exact, and what is left is added at the end (the method
// of fdlibm's log2). q and P are Chebyshev interpolations, computed in 60 digits; their errors are
// far below an ulp.
#include "engine/rules/decompositions.h"

#include <bit>
#include <limits>

#include "engine/rewrite/rewriter.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows

// An IEEE format and the polynomials for it.
struct Format {
  DType floats, ints;
  int mantissa;  // explicit bits
  int64_t bias;
  double smallest;         // x below this gives exp2(x) = 0
  int64_t one, sqrt_half;  // bits of 1 and of sqrt(1/2)
  int64_t upper;           // mask of the upper half of the mantissa
  double log2e_hi, log2e_lo;
  std::span<const double> exp2;  // q, ascending
  std::span<const double> log2;  // P, ascending
};

constexpr double kExp2F32[] = {0.69314718055994530942,    0.24022650922288758071,
                               0.055504108839096183929,   0.0096180566785246380754,
                               0.0013333502386162770741,  0.00015461444698569129083,
                               0.000015297323760701074108};
constexpr double kLog2F32[] = {0.66666666554497091551, 0.40000121839806126714,
                               0.28550820815960663296, 0.23330467216303836299};
constexpr double kExp2F64[] = {
    0.69314718055994530925,     0.24022650695910071233,   0.055504108664821627039,
    0.0096181291076284794928,   0.0013333558146406470697, 0.00015403530393370733411,
    0.000015252733841556772589, 1.321548680870556279e-6,  1.0178057087733941105e-7,
    7.0548973041554992774e-9,   4.455817908336064493e-10, 2.5729324177362304214e-11};
constexpr double kLog2F64[] = {
    0.66666666666666696862, 0.3999999999989950449,  0.28571428625975484921, 0.22222211134795079855,
    0.1818288912526172208,  0.15331721600556041269, 0.1461644968504340586};

constexpr Format kF32{DType::kFloat32,
                      DType::kInt32,
                      23,
                      127,
                      -150,
                      0x3f800000,
                      0x3f3504f3,
                      ~int64_t{0xfff},
                      1.4423828125,
                      0.000312228388963,
                      kExp2F32,
                      kLog2F32};
constexpr Format kF64{DType::kFloat64,
                      DType::kInt64,
                      52,
                      1023,
                      -1075,
                      0x3ff0000000000000,
                      0x3fe6a09e667f3bcd,
                      ~int64_t{0xffffffff},
                      1.4426946640014648,
                      3.7688749856360992468e-7,
                      kExp2F64,
                      kLog2F64};

const Format& FormatOf(DType dtype) { return dtype == DType::kFloat32 ? kF32 : kF64; }

// A value under construction; numbers become constants of its type.
struct Term {
  Rewriter* b;
  UOp u;

  Term Number(double value) const {
    const DType dtype = u.dtype();
    return {b, IsFloat(dtype) ? b->graph()->ConstFloat(dtype, value)
                              : b->graph()->Const(dtype, static_cast<int64_t>(value))};
  }
  Term Word(int64_t value) const { return {b, b->graph()->Const(u.dtype(), value)}; }
  Term To(Op op, DType dtype) const { return {b, b->Make(op, dtype, {u})}; }
  Term Then(Op op, Term other) const { return {b, b->Make(op, {u, other.u})}; }
  Term Select(Term yes, Term no) const { return {b, b->Make(Op::kWhere, {u, yes.u, no.u})}; }

  friend Term operator+(Term x, Term y) { return x.Then(Op::kAdd, y); }
  friend Term operator-(Term x, Term y) { return x.Then(Op::kSub, y); }
  friend Term operator*(Term x, Term y) { return x.Then(Op::kMul, y); }
  friend Term operator/(Term x, Term y) { return x.Then(Op::kFDiv, y); }
  friend Term operator<(Term x, Term y) { return x.Then(Op::kCmpLt, y); }
  friend Term operator&(Term x, Term y) { return x.Then(Op::kAnd, y); }
};

Term Horner(Term t, std::span<const double> ascending) {
  Term sum = t.Number(ascending.back());
  for (size_t i = ascending.size() - 1; i-- > 0;) sum = sum * t + t.Number(ascending[i]);
  return sum;
}

UOp Exp2(Rewriter& b, const Match& m) {
  const Format& format = FormatOf(m.root.dtype());
  const Term v{&b, m.x()};
  const Term whole = (v + v.Number(0.5)).To(Op::kFloor, format.floats);
  const Term f = v - whole;
  const Term power = f * Horner(f, format.exp2) + f.Number(1);

  const Term n = whole.To(Op::kCast, format.ints);
  const auto scale = [&](Term k) {
    return (k + k.Word(format.bias))
        .Then(Op::kShl, k.Word(format.mantissa))
        .To(Op::kBitcast, format.floats);
  };
  const Term half = n.Then(Op::kShr, n.Word(1));
  const Term result = power * scale(half) * scale(n - half);

  // x + inf is inf where x is too large, and NaN where it is NaN.
  const double inf = std::numeric_limits<double>::infinity();
  const Term top = v.Number(static_cast<double>(format.bias + 1));
  const Term upper = (v < top).Select(result, v + v.Number(inf));
  return (v < v.Number(format.smallest)).Select(v.Number(0), upper).u;
}

UOp Log2(Rewriter& b, const Match& m) {
  const Format& format = FormatOf(m.root.dtype());
  const Term v{&b, m.x()};
  // Subnormals are scaled up by 2^(mantissa + 2) first.
  const int up = format.mantissa + 2;
  const double smallest_normal = format.floats == DType::kFloat32
                                     ? double{std::numeric_limits<float>::min()}
                                     : std::numeric_limits<double>::min();
  const Term tiny = v < v.Number(smallest_normal);
  const Term scaled = tiny.Select(v * v.Number(static_cast<double>(int64_t{1} << up)), v);
  const Term bits = scaled.To(Op::kBitcast, format.ints);
  const Term shifted = bits + bits.Word(format.one - format.sqrt_half);
  const Term k = shifted.Then(Op::kShr, bits.Word(format.mantissa)) +
                 tiny.Select(bits.Word(-up - format.bias), bits.Word(-format.bias));
  const Term mantissa =
      ((shifted & bits.Word((int64_t{1} << format.mantissa) - 1)) + bits.Word(format.sqrt_half))
          .To(Op::kBitcast, format.floats);

  const Term f = mantissa - v.Number(1);
  const Term s = f / (f + v.Number(2));
  const Term z = s * s;
  const Term half_square = f * f * v.Number(0.5);
  const Term hi = ((f - half_square).To(Op::kBitcast, format.ints) & bits.Word(format.upper))
                      .To(Op::kBitcast, format.floats);
  const Term lo = (f - hi) - half_square + s * (half_square + z * Horner(z, format.log2));
  const Term exponent = k.To(Op::kCast, format.floats);
  const Term head = hi * v.Number(format.log2e_hi);
  const Term sum = exponent + head;
  const Term tail = (lo + hi) * v.Number(format.log2e_lo) + lo * v.Number(format.log2e_hi) +
                    ((exponent - sum) + head);
  const Term result = tail + sum;

  const double inf = std::numeric_limits<double>::infinity();
  const Term zero{&b, b.Make(Op::kCmpEq, {v.u, v.Number(0).u})};
  const Term low = zero.Select(v.Number(-inf), v.Number(std::numeric_limits<double>::quiet_NaN()));
  const Term high = (v < v.Number(inf)).Select(result, v);
  return (v.Number(0) < v).Select(high, low).u;
}

UOp ShiftForDivision(Rewriter& b, const Match& m) {
  const int shift = std::countr_zero(static_cast<uint64_t>(m.k0()));
  return b.Make(Op::kShr, {m.x(), b.graph()->Const(m.root.dtype(), shift)});
}

constexpr Rule kDecompositionRows[] = {
    rule(exp2(x), Exp2),
    rule(log2(x), Log2),
};

constexpr Rule kMulAccRows[] = {
    rule(x * y + z, mulacc(x, y, z), when(kFloats)),
};

constexpr Rule kStrengthRows[] = {
    rule(x / c0, ShiftForDivision, when(kSigned, 0 < c0 && (c0 & (c0 - 1)) == 0)),
    rule(x % c0, x&(c0 - 1), when(kSigned, 0 < c0 && (c0 & (c0 - 1)) == 0)),
};

}  // namespace

constexpr RuleTable kDecompositions{"decompositions", kDecompositionRows};
constexpr RuleTable kMulAcc{"mulacc", kMulAccRows};
constexpr RuleTable kStrength{"strength", kStrengthRows};

}  // namespace telegrad
