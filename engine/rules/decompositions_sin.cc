// sin x = +-sin r or +-cos r, where |x| = n * pi/2 + r with |r| <= pi/4.
//
// n and r come from the fraction of |x| * 2/pi (Payne and Hanek, "Radian reduction for
// trigonometric functions", 1983), the same way for every |x| >= pi/4: a branch would cost more,
// since lanes take both sides. |x| = M * 2^s with an integer M; of the bits of 2/pi only those
// matter whose product with M * 2^s is below 4, and of those as many as the closest approach of a
// float to a multiple of pi/2 asks for (Muller, "Elementary Functions", gives 2^-62 for f64). So a
// window of 2/pi, 96 bits for f32 and 192 for f64, is multiplied by M in integers, and the top of
// the product is |x| * 2/pi mod 4 with two bits before the point.
#include <limits>
#include <numbers>
#include <vector>

#include "engine/rewrite/rule.h"
#include "engine/rules/decompositions_functions.h"

namespace telegrad {
namespace {

// 55 zeros, then 2/pi from its first bit behind the point on.
constexpr uint64_t kTwoOverPi[] = {
    0x0000000000000145, 0xf306dc9c882a53f8, 0x4eafa3ea69bb81b6, 0xc52b3278872083fc,
    0xa2c757bd778ac36e, 0x48dc74849ba5c00c, 0x925dd413a32439fc, 0x3bd63962534e7dd1,
    0x046bea5d768909d3, 0x38e04d68befc8273, 0x23ac7306a673e939, 0x08bf177bf250763f,
    0xf12fffbc0b301fde, 0x5e2316b414da3eda, 0x6cfd9e4f96136e9e, 0x8c7ecd3cbfd45aea,
    0x4f758fd7cbe2f67a, 0x0e73ef14a525d4d7, 0xf6bf623f1aba10ac};

// pi/2 * 2^-62, what a unit of the fraction is worth: as one number, and as 26 bits and the rest.
constexpr double kUnit = 0x1.921fb54442d18p-62;
constexpr double kUnitHi = 0x1.921fb58p-62, kUnitLo = -0x1.dde973dcb3b3ap-89;

// `count` words of kTwoOverPi from bit `at` on, selected by one bit of the word's number after
// another, from `top_bit` on; a number of more bits does not come.
std::vector<Term> Window(Term at, int count, int top_bit) {
  const Term word = at >> 6, offset = at & 63, complement = offset.Word(63) - offset;
  std::vector<Term> words;
  for (uint64_t w : kTwoOverPi) words.push_back(at.Word(static_cast<int64_t>(w)));
  for (int bit = top_bit; bit > 0; bit /= 2) {
    const Term is_set = (word & bit).Differs(word.Word(0));
    for (int i = 0; i < count + bit; ++i) {
      words[i] = is_set.Select(words[i + bit], words[i]);
    }
  }
  std::vector<Term> window;
  for (int i = 0; i < count; ++i) {
    window.push_back((words[i] << offset) | ((words[i + 1] >> 1) >> complement));
  }
  return window;
}

// The upper 64 bits of the product of two u64.
Term MultiplyHigh(Term x, Term y) {
  const int64_t low = 0xffffffff;
  const Term x0 = x & low, x1 = x >> 32, y0 = y & low, y1 = y >> 32;
  const Term first = x1 * y0 + ((x0 * y0) >> 32);
  const Term second = x0 * y1 + (first & low);
  return x1 * y1 + (first >> 32) + (second >> 32);
}

struct Reduced {
  Term quadrant;  // u64, 0 to 3
  Term r;
};

// Of the product's top 64 bits: the nearest multiple of pi/2, and the signed rest in r.
Reduced Split(Term high) {
  const Term quadrant = (high + high.Word(int64_t{1} << 61)) >> 62;
  return {quadrant, (high - (quadrant << 62)).Bitcast(DType::kInt64)};
}

Reduced ReduceF32(Term integer, Term at) {
  const std::vector<Term> w = Window(at, 2, 2);
  auto [quadrant, fraction] = Split(integer * w[0] + ((integer * (w[1] >> 32)) >> 32));
  const Term wide = fraction.Cast(DType::kFloat64);
  return {quadrant, (wide * wide.Number(kUnit)).Cast(DType::kFloat32)};
}

Reduced ReduceF64(Term integer, Term at) {
  const std::vector<Term> w = Window(at, 3, 8);
  const Term middle = integer * w[1], low = middle + MultiplyHigh(integer, w[2]);
  const Term carry = (low < middle).Cast(DType::kUInt64);
  auto [quadrant, fraction] = Split(integer * w[0] + MultiplyHigh(integer, w[1]) + carry);
  // The fraction's 128 bits as the sum of two floats, then times the unit in two parts, of which
  // the first is exact.
  const Term whole = fraction.Cast(DType::kFloat64);
  const Term rest = (fraction - whole.Cast(DType::kInt64)).Cast(DType::kFloat64) +
                    low.Cast(DType::kFloat64) * whole.Number(0x1p-64);
  const Term sum = whole + rest, error = rest - (sum - whole);
  const Term upper = (sum.Bitcast(DType::kInt64) & ~int64_t{0x7ffffff}).Bitcast(DType::kFloat64);
  const Term tail = upper * sum.Number(kUnitLo) + ((sum - upper) + error) * sum.Number(kUnit);
  return {quadrant, upper * sum.Number(kUnitHi) + tail};
}

}  // namespace

UOp DecomposeSin(Rewriter& b, const Match& m) {
  const DType dtype = m.root.dtype();
  const FunctionFormat& format = FormatOf(dtype);
  const bool single = dtype == DType::kFloat32;
  const int64_t hidden = int64_t{1} << format.mantissa;
  const int sign_bit = single ? 31 : 63;

  const Term bits = Term{&b, m.x()}.Bitcast(format.codes);
  const Term magnitude = bits & (static_cast<int64_t>((uint64_t{1} << sign_bit) - 1));
  const Term sign = bits ^ magnitude;
  const Term exponent = (magnitude >> format.mantissa).Cast(DType::kUInt64);
  const Term bias = exponent.Word(format.bias);
  // kTwoOverPi is at the place for x >= 1; below it x has one bit less before the point.
  const Term significand = ((magnitude & (hidden - 1)) | hidden).Cast(DType::kUInt64);
  const Term integer = (exponent < bias).Select(significand, significand << 1);
  const Term from_bias = exponent.Then(Op::kMax, bias) - bias;
  auto [quadrant, r] =
      single ? ReduceF32(integer, from_bias + bias.Word(29)) : ReduceF64(integer, from_bias);

  const Term x = magnitude.Bitcast(dtype);
  const Term direct = x < x.Number(std::numbers::pi / 4);
  r = direct.Select(x, r);
  quadrant = direct.Select(quadrant.Word(0), quadrant);

  const Term z = r * r, one = r.Number(1);
  const Term sin = r + r * z * Horner(z, format.sin);
  const Term cos = one - (z * z.Number(0.5) - z * z * Horner(z, format.cos));
  const Term odd = (quadrant & 1).Differs(quadrant.Word(0));
  const Term flip = (quadrant >> 1).Cast(format.codes) << sign_bit;
  const Term result = (odd.Select(cos, sin).Bitcast(format.codes) ^ sign ^ flip).Bitcast(dtype);
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return (x < x.Number(inf)).Select(result, x.Number(nan)).u;
}

}  // namespace telegrad
