// The three instructions around a division by Newton's method (ISA documents, "V_DIV_SCALE_F32",
// "V_DIV_FMAS_F32", "V_DIV_FIXUP_F32" and those of f64): operands that would become denormal or
// infinite on the way are scaled by a power of two, the quotient is scaled back, and the special
// cases are put in.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

template <class T>
struct Facts;
template <>
struct Facts<float> {
  static constexpr int kScale = 64;
  static constexpr int kLarge =
      96;  // difference of exponents at which a quotient is near the largest
  static constexpr int kTiny = 23;  // biased exponent below which a numerator is tiny
  static constexpr int kUnderflow = -150;
  using Bits = uint32_t;
};
template <>
struct Facts<double> {
  static constexpr int kScale = 128;
  static constexpr int kLarge = 768;
  static constexpr int kTiny = 53;
  static constexpr int kUnderflow = -1075;
  using Bits = uint64_t;
};

// The exponent as stored.
template <class T>
int Biased(T x) {
  using Bits = typename Facts<T>::Bits;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  return static_cast<int>(std::bit_cast<Bits>(x) << 1 >> (kMantissa + 1));
}

// The quotient of magnitudes lies below the normal numbers.
template <class T>
bool QuotientIsDenormal(T numerator, T denominator) {
  int n = 0, d = 0;
  const T a = std::frexp(std::abs(numerator), &n);
  const T b = std::frexp(std::abs(denominator), &d);
  const int exponent = n - d - (a < b ? 1 : 0);  // of the quotient, which is 1.x * 2^exponent
  return exponent < std::numeric_limits<T>::min_exponent - 1;
}

template <class T>
Carried<T> Scale(T value, T denominator, T numerator) {
  constexpr int kScale = Facts<T>::kScale;
  const bool of_denominator = std::bit_cast<typename Facts<T>::Bits>(value) ==
                              std::bit_cast<typename Facts<T>::Bits>(denominator);
  if (std::isnan(denominator) || std::isnan(numerator)) return {Quieted(value), false};
  if (numerator == 0 || denominator == 0) return {std::numeric_limits<T>::quiet_NaN(), false};
  if (std::isinf(denominator) || std::isinf(numerator)) return {value, false};
  if (Biased(numerator) - Biased(denominator) >= Facts<T>::kLarge) {
    return {of_denominator ? std::ldexp(value, kScale) : value, true};
  }
  if (Biased(denominator) == 0) return {std::ldexp(value, kScale), false};
  const bool reciprocal = QuotientIsDenormal(T{1}, denominator);
  const bool quotient = QuotientIsDenormal(numerator, denominator);
  if (reciprocal && quotient) return {of_denominator ? std::ldexp(value, -kScale) : value, true};
  if (reciprocal) return {std::ldexp(value, -kScale), false};
  if (quotient) return {of_denominator ? value : std::ldexp(value, kScale), true};
  if (Biased(numerator) <= Facts<T>::kTiny) return {std::ldexp(value, kScale), false};
  return {value, false};
}

float FusedScaled(float a, float b, float c, bool scale) {
  if (!scale) return Fused(a, b, c);
  const double exact = FmaToOdd(a, b, c);
  return static_cast<float>(std::ldexp(exact, Biased(c) > 127 ? 64 : -64));
}
// sum + error, which is less than half of the sum's last place, times 2^scale, rounded once: a
// denormal result has fewer places than the sum, and where these leave it halfway between two, the
// error decides.
double Scaled(double sum, double error, int scale) {
  constexpr double kPlace = std::numeric_limits<double>::denorm_min();
  const double scaled = std::ldexp(sum, scale);
  const double rest = sum - std::ldexp(scaled, -scale);
  const bool halfway = rest != 0 && std::abs(rest) == std::ldexp(kPlace, -scale) / 2;
  const bool beyond = error != 0 && std::signbit(error) == std::signbit(rest);
  return halfway && beyond ? scaled + std::copysign(kPlace, rest) : scaled;
}

double FusedScaled(double a, double b, double c, bool scale) {
  const double sum = std::fma(a, b, c);
  if (!scale) return sum;
  // Of a sum that is near one of its summands, the difference to that is exact.
  const bool near_c = std::abs(c) >= std::abs(a * b);
  const double error = near_c ? std::fma(a, b, c - sum) : std::fma(a, b, -sum) + c;
  return Scaled(sum, error, Biased(c) > 1023 ? 128 : -128);
}

template <class T>
T Fixup(T quotient, T denominator, T numerator) {
  const T sign = std::signbit(denominator) != std::signbit(numerator) ? T{-1} : T{1};
  if (std::isnan(numerator)) return Quieted(numerator);
  if (std::isnan(denominator)) return Quieted(denominator);
  const bool indefinite =
      (denominator == 0 && numerator == 0) || (std::isinf(denominator) && std::isinf(numerator));
  if (indefinite) return -std::abs(std::numeric_limits<T>::quiet_NaN());
  if (denominator == 0 || std::isinf(numerator))
    return std::copysign(std::numeric_limits<T>::infinity(), sign);
  if (std::isinf(denominator) || numerator == 0) return std::copysign(T{0}, sign);
  if (Biased(numerator) - Biased(denominator) < Facts<T>::kUnderflow) {
    // Rounded to nearest.
    return std::copysign(T{0}, sign);
  }
  if (std::isnan(quotient)) return std::copysign(std::numeric_limits<T>::infinity(), sign);
  return std::copysign(quotient, sign);
}

constexpr Row kDivideRows[] = {
    LaneRow<[](float a, float b, float c) { return Scale(a, b, c); }>("v_div_scale_f32"),
    LaneRow<[](double a, double b, double c) { return Scale(a, b, c); }>("v_div_scale_f64"),
    LaneRow<[](float a, float b, float c, bool s) { return FusedScaled(a, b, c, s); }>(
        "v_div_fmas_f32", kReadsVcc),
    LaneRow<[](double a, double b, double c, bool s) { return FusedScaled(a, b, c, s); }>(
        "v_div_fmas_f64", kReadsVcc),
    LaneRow<[](float a, float b, float c) { return Fixup(a, b, c); }>("v_div_fixup_f32"),
    LaneRow<[](double a, double b, double c) { return Fixup(a, b, c); }>("v_div_fixup_f64"),
    LaneRow<[](Half a, Half b, Half c) {
      const float q = Fixup(ToFloat(a), ToFloat(b), ToFloat(c));
      return ToHalf(q);
    }>("v_div_fixup_f16"),
};

}  // namespace

std::span<const Row> DivideRows() { return kDivideRows; }

}  // namespace fakeamd
