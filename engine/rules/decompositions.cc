// exp2: x = n + f with |f| <= 1/2; 2^f = 1 + f*q(f); times 2^n in two factors, so that the last
// product is the only one that may round into the subnormal range. x is clamped before rather than
// the result after: n then always fits into an integer, and the renderer sees it.
//
// log2: x = m * 2^k with m in [sqrt(1/2), sqrt(2)). With f = m - 1 and s = f / (2 + f),
//   ln m = 2*artanh(s) = f - (f^2/2 - s*(f^2/2 + z*P(z))),  z = s^2,
// where z*P(z) = ln((1+s)/(1-s))/s - 2. The leading part is cut to half the mantissa, so that its
// product with the upper half of 1/ln 2 is exact, and what is left is added at the end (the method
// of fdlibm's log2). q and P are Chebyshev interpolations, computed in 60 digits; their errors are
// far below an ulp.
#include "engine/rules/decompositions.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>

#include "engine/rules/decompositions_functions.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows

constexpr double kExp2F32[] = {0.69314718802622878,   0.24022650760568127,   0.055503571142190778,
                               0.0096180825572778515, 0.0013390863364671234, 0.0001545316294512069};
constexpr double kLog2F32[] = {0.66666666554497091551, 0.40000121839806126714,
                               0.28550820815960663296, 0.23330467216303836299};
constexpr double kSinF32[] = {-0.16666666663853044094, 0.0083333318738370880222,
                              -0.00019840086263755436606, 2.7249864655139087094e-6};
constexpr double kCosF32[] = {0.041666664658300420931, -0.001388830280230915728,
                              0.000024547891619813450954};
constexpr double kExp2F64[] = {
    0.69314718055994530925,     0.24022650695910071233,   0.055504108664821627039,
    0.0096181291076284794928,   0.0013333558146406470697, 0.00015403530393370733411,
    0.000015252733841556772589, 1.321548680870556279e-6,  1.0178057087733941105e-7,
    7.0548973041554992774e-9,   4.455817908336064493e-10, 2.5729324177362304214e-11};
constexpr double kLog2F64[] = {
    0.66666666666666696862, 0.3999999999989950449,  0.28571428625975484921, 0.22222211134795079855,
    0.1818288912526172208,  0.15331721600556041269, 0.1461644968504340586};
constexpr double kSinF64[] = {-0.16666666666666664621,    0.0083333333333309461029,
                              -0.00019841269836754970014, 2.7557316100683029116e-6,
                              -2.5051131455427943527e-8,  1.5918101230273892618e-10};
constexpr double kCosF64[] = {0.041666666666666665387,    -0.0013888888888887395746,
                              0.000024801587298763433164, -2.7557317270560324051e-7,
                              2.0876146024689744184e-9,   -1.1382614868556182128e-11};

constexpr FunctionFormat kF32{.floats = DType::kFloat32,
                              .ints = DType::kInt32,
                              .codes = DType::kUInt32,
                              .mantissa = 23,
                              .bias = 127,
                              .smallest = -254,
                              .one = 0x3f800000,
                              .sqrt_half = 0x3f3504f3,
                              .upper = ~int64_t{0xfff},
                              .log2e_hi = 1.4423828125,
                              .log2e_lo = 0.000312228388963,
                              .exp2 = kExp2F32,
                              .log2 = kLog2F32,
                              .sin = kSinF32,
                              .cos = kCosF32};
constexpr FunctionFormat kF64{.floats = DType::kFloat64,
                              .ints = DType::kInt64,
                              .codes = DType::kUInt64,
                              .mantissa = 52,
                              .bias = 1023,
                              .smallest = -2046,
                              .one = 0x3ff0000000000000,
                              .sqrt_half = 0x3fe6a09e667f3bcd,
                              .upper = ~int64_t{0xffffffff},
                              .log2e_hi = 1.4426946640014648,
                              .log2e_lo = 3.7688749856360992468e-7,
                              .exp2 = kExp2F64,
                              .log2 = kLog2F64,
                              .sin = kSinF64,
                              .cos = kCosF64};

// 2^(whole + f), where `whole` lies between the exponents below. Nodes are made one after another,
// not as operands of one expression, whose order compilers choose: the golden files have that
// order.
Term TwoTo(const FunctionFormat& format, Term whole, Term f) {
  const Term one = f.Number(1), sum = Horner(f, format.exp2);
  const Term power = f.MulAcc(sum, one);
  const Term n = whole.Cast(format.ints);
  const auto scale = [&](Term k) {
    return ((k + k.Word(format.bias)) << format.mantissa).Bitcast(format.floats);
  };
  const Term half = n >> 1, other_half = n - half;
  const Term other_scale = scale(other_half);
  return power * scale(half) * other_scale;
}

double Overflows(const FunctionFormat& format) { return static_cast<double>(format.bias + 1); }

// The nearest integer, but at most the first whose power is infinite; that also for NaN. As a clamp
// that a conversion to an integer sees.
Term WholeOf(const FunctionFormat& format, Term v) {
  const Term rounded = (v + v.Number(0.5)).Floor(), top = v.Number(Overflows(format));
  return (rounded < top).Select(rounded, top);
}

// e^x comes as the power x*c of 2, c being the number of the type that is next to log2 e. Rounded,
// x*c would be off by up to half a unit in its last place, and the power by up to 90 units of its
// own. What c lacks of log2 e times 2^k, and of its negative, for c of such a form; else 0.
double MissingOfLog2e(const FunctionFormat& format, double c) {
  constexpr double kLog2e = std::numbers::log2e, kRest = 2.0355273740931033e-17;
  constexpr int kMostExponent = 64;  // beyond it a bound divided by c, or the rest, has no number
  const bool single = format.floats == DType::kFloat32;
  const double known = single ? static_cast<float>(kLog2e) : kLog2e;
  const double times = c / known;
  int exponent;
  if (!std::isfinite(times) || std::fabs(std::frexp(times, &exponent)) != 0.5) return 0;
  if (std::abs(exponent) > kMostExponent) return 0;
  return times * (single ? kLog2e - known : kRest);
}

// Far below the least exponent, from where the powers round to 0, both factors are 0: no product
// underflows then, which processors take a hundred cycles for, as for each score that a mask hides
// from a softmax. Above the greatest the factors' product is inf. A NaN is in f.
UOp DecomposeExp2(Rewriter& b, const Match& m) {
  const FunctionFormat& format = FormatOf(m.root.dtype());
  const Term x{&b, m.x()};
  const bool scaled = m.x().is(Op::kMul) && m.x().src(1).is_const();
  const double c = scaled ? std::bit_cast<double>(m.x().src(1).const_word()) : 0;
  const double missing = scaled ? MissingOfLog2e(format, c) : 0;
  if (missing == 0) {
    const Term least = x.Number(format.smallest);
    const Term v = (x < least).Select(least, x);
    const Term whole = WholeOf(format, v);
    return TwoTo(format, whole, v - whole).u;
  }
  // x*c is cut off below by x. The rest of it is exact but for one rounding.
  const Term full{&b, m.x().src(0)}, bound = full.Number(format.smallest / c);
  const Term cut = c > 0 ? (full < bound).Select(bound, full) : (bound < full).Select(bound, full);
  const Term whole = WholeOf(format, cut * cut.Number(c));
  const Term near = cut.MulAcc(cut.Number(c), whole.To(Op::kNeg, format.floats));
  return TwoTo(format, whole, cut.MulAcc(cut.Number(missing), near)).u;
}

// Where an instruction computes that of f32.
UOp DecomposeWideExp2(Rewriter& b, const Match& m) {
  return m.root.dtype() == DType::kFloat32 ? UOp() : DecomposeExp2(b, m);
}

UOp DecomposeLog2(Rewriter& b, const Match& m) {
  const FunctionFormat& format = FormatOf(m.root.dtype());
  const Term v{&b, m.x()};
  const auto [mantissa, exponent] = ScaleToOne(format, v);
  const Term f = mantissa - v.Number(1);
  const Term s = f / (f + v.Number(2));
  const Term z = s * s;
  const Term half_square = f * f * v.Number(0.5);
  const Term hi = ((f - half_square).Bitcast(format.ints) & format.upper).Bitcast(format.floats);
  const Term lo = (f - hi) - half_square + s * (half_square + z * Horner(z, format.log2));
  const Term head = hi * v.Number(format.log2e_hi);
  const Term sum = exponent + head;
  const Term tail = (lo + hi) * v.Number(format.log2e_lo) + lo * v.Number(format.log2e_hi) +
                    ((exponent - sum) + head);
  const Term result = tail + sum;

  const double inf = std::numeric_limits<double>::infinity();
  const Term low = v.Equals(v.Number(0))
                       .Select(v.Number(-inf), v.Number(std::numeric_limits<double>::quiet_NaN()));
  const Term high = (v < v.Number(inf)).Select(result, v);
  return (v.Number(0) < v).Select(high, low).u;
}

// An integer that is cut to a byte, in its own type again: one operation on a vector, where
// conversions to lanes of another size and back take several.
UOp ByteOfInteger(Rewriter& b, const Match& m) {
  const DType middle = m.root.src(0).dtype(), type = m.x().dtype();
  if (middle != DType::kUInt8 || m.root.dtype() != type || !IsInt(type)) return {};
  return b.Make(Op::kAnd, {m.x(), b.graph()->Const(type, 255)});
}

UOp ShiftForDivision(Rewriter& b, const Match& m) {
  const int shift = std::countr_zero(static_cast<uint64_t>(m.k0()));
  return b.Make(Op::kShr, {m.x(), b.graph()->Const(m.root.dtype(), shift)});
}

template <RewriteFn kExp2>
constexpr Rule kDecompositionRows[] = {
    rule(exp2(x), [](Rewriter& b, const Match& m) { return kExp2(b, m); }),
    rule(log2(x), DecomposeLog2),
    rule(sin(x), DecomposeSin),
    rule(pow(x, y), DecomposePow),
    rule(threefry(x, y), DecomposeThreefry),
    rule(cast(cast(x)), ByteOfInteger),
};

constexpr Rule kMulAccRows[] = {
    rule(x * y + z, mulacc(x, y, z), when(kFloats)),
};

// The formatter takes a binary & for the declaration of a reference.
// clang-format off
constexpr Rule kStrengthRows[] = {
    rule(x / c0, ShiftForDivision, when(kSigned, 0 < c0 && (c0 & (c0 - 1)) == 0)),
    rule(x % c0, x & (c0 - 1), when(kSigned, 0 < c0 && (c0 & (c0 - 1)) == 0)),
};
// clang-format on

}  // namespace

const FunctionFormat& FormatOf(DType dtype) { return dtype == DType::kFloat32 ? kF32 : kF64; }

Scaled ScaleToOne(const FunctionFormat& format, Term x) {
  // Subnormals are scaled up by 2^(mantissa + 2) first.
  const int up = format.mantissa + 2;
  const double smallest_normal = std::ldexp(1.0, static_cast<int>(1 - format.bias));
  const Term tiny = x < x.Number(smallest_normal);
  const Term scaled = tiny.Select(x * x.Number(static_cast<double>(int64_t{1} << up)), x);
  const Term bits = scaled.Bitcast(format.ints);
  const Term shifted = bits + bits.Word(format.one - format.sqrt_half);
  const Term exponent = (shifted >> format.mantissa) +
                        tiny.Select(bits.Word(-up - format.bias), bits.Word(-format.bias));
  const Term mantissa =
      (shifted & ((int64_t{1} << format.mantissa) - 1)) + bits.Word(format.sqrt_half);
  return {mantissa.Bitcast(format.floats), exponent.Cast(format.floats)};
}

Term PowerOfTwo(const FunctionFormat& format, Term v, Term high, Term low) {
  const Term least = v.Number(format.smallest);
  const Term whole = WholeOf(format, (v < least).Select(least, v));
  const Term result = TwoTo(format, whole, (high - whole) + low);
  // v + inf is inf where v is too large, and NaN where it is NaN.
  const Term top = v.Number(Overflows(format));
  const Term upper =
      (v < top).Select(result, v + v.Number(std::numeric_limits<double>::infinity()));
  return (v < least).Select(v.Number(0), upper);
}

constexpr RuleTable kDecompositions{"decompositions", kDecompositionRows<DecomposeExp2>};
constexpr RuleTable kDecompositionsBesideExp2{"decompositions",
                                              kDecompositionRows<DecomposeWideExp2>};
constexpr RuleTable kMulAcc{"mulacc", kMulAccRows};
constexpr RuleTable kStrength{"strength", kStrengthRows};

const RuleTable& DecompositionsFor(const Target& target) {
  return target.exp2 ? kDecompositionsBesideExp2 : kDecompositions;
}

}  // namespace telegrad
