// Arithmetic of f32 and f64 of vectors: one rounding to nearest even each, denormals kept.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

// What lies outside [0, 1) by rounding becomes the largest number below 1.
template <class T>
T Fraction(T x) {
  if (std::isinf(x)) return std::numeric_limits<T>::quiet_NaN();
  return std::min(x - std::floor(x), std::nextafter(T{1}, T{0}));
}

// The significand, of magnitude 0.5 to 1; zero, infinity and NaN as they are.
template <class T>
T Significand(T x) {
  int exponent = 0;
  return std::isfinite(x) ? std::frexp(x, &exponent) : x;
}
template <class T>
int32_t Exponent(T x) {
  int exponent = 0;
  if (std::isfinite(x) && x != 0) std::frexp(x, &exponent);
  return exponent;
}

// Bits of the classes: signalling and quiet NaN, then from -infinity to infinity.
template <class T, class B>
bool IsClass(T x, uint32_t mask) {
  constexpr B kQuiet = B{1} << (std::numeric_limits<T>::digits - 2);
  const B bits = std::bit_cast<B>(x);
  int index = 0;
  if (std::isnan(x)) {
    index = (bits & kQuiet) != 0 ? 1 : 0;
  } else {
    const bool negative = std::signbit(x);
    const int size = std::isinf(x) ? 3 : x == 0 ? 0 : std::isnormal(x) ? 2 : 1;
    index = negative ? 5 - size : 6 + size;
  }
  return (mask >> index & 1) != 0;
}

// A product and a sum, each rounded; without denormals, whatever the mode (ISA documents of gfx9,
// "V_MAD_F32").
float MultiplyAdd(float a, float b, float c) {
  const float product = Flushed(Flushed(a) * Flushed(b));
  return Flushed(Canonical(product + Flushed(c), a, b, c));
}

constexpr Row kFloatRows[] = {
    LaneRow<[](float a, float b) { return Canonical(a + b, a, b); }>("v_add_f32"),
    LaneRow<[](float a, float b) { return Canonical(a - b, a, b); }>("v_sub_f32"),
    LaneRow<[](float a, float b) { return Canonical(b - a, a, b); }>("v_subrev_f32"),
    LaneRow<[](float a, float b) { return Canonical(a * b, a, b); }>("v_mul_f32"),
    LaneRow<[](float a, float b) { return a == 0 || b == 0 ? 0.0f : Canonical(a * b, a, b); }>(
        "v_mul_legacy_f32|v_mul_dx9_zero_f32"),
    LaneRow<[](float a, float b, float c) { return Canonical(Fused(a, b, c), a, b, c); }>(
        "v_fma_f32|v_fmaak_f32|v_fmamk_f32"),
    LaneRow<[](float a, float b, float c) { return Canonical(Fused(a, b, c), a, b, c); }>(
        "v_fmac_f32", kAccumulates),
    LaneRow<[](float a, float b, float c) { return MultiplyAdd(a, b, c); }>(
        "v_mad_f32|v_madmk_f32|v_madak_f32"),
    LaneRow<[](float a, float b, float c) { return MultiplyAdd(a, b, c); }>("v_mac_f32",
                                                                            kAccumulates),
    LaneRow<[](float a, float b) { return Smaller(a, b); }>("v_min_f32|v_min_num_f32"),
    LaneRow<[](float a, float b) { return Larger(a, b); }>("v_max_f32|v_max_num_f32"),
    LaneRow<[](float a, float b, float c) { return Smaller(Smaller(a, b), c); }>(
        "v_min3_f32|v_min3_num_f32"),
    LaneRow<[](float a, float b, float c) { return Larger(Larger(a, b), c); }>(
        "v_max3_f32|v_max3_num_f32"),
    LaneRow<[](float a, float b, float c) { return Middle(a, b, c); }>("v_med3_f32|v_med3_num_f32"),
    LaneRow<[](float a, float b, float c) { return Smaller(Larger(a, b), c); }>(
        "v_maxmin_f32|v_maxmin_num_f32"),
    LaneRow<[](float a, float b, float c) { return Larger(Smaller(a, b), c); }>(
        "v_minmax_f32|v_minmax_num_f32"),
    LaneRow<[](float a, float b) { return Minimum(a, b); }>("v_minimum_f32"),
    LaneRow<[](float a, float b) { return Maximum(a, b); }>("v_maximum_f32"),
    LaneRow<[](float a, float b, float c) { return Minimum(Minimum(a, b), c); }>("v_minimum3_f32"),
    LaneRow<[](float a, float b, float c) { return Maximum(Maximum(a, b), c); }>("v_maximum3_f32"),
    LaneRow<[](float a, float b, float c) { return Maximum(Minimum(a, b), c); }>(
        "v_minimummaximum_f32"),
    LaneRow<[](float a, float b, float c) { return Minimum(Maximum(a, b), c); }>(
        "v_maximumminimum_f32"),
    LaneRow<[](float a) { return Quieted(std::floor(a)); }>("v_floor_f32"),
    LaneRow<[](float a) { return Quieted(std::ceil(a)); }>("v_ceil_f32"),
    LaneRow<[](float a) { return Quieted(std::trunc(a)); }>("v_trunc_f32"),
    LaneRow<[](float a) { return Quieted(std::nearbyint(a)); }>("v_rndne_f32"),
    LaneRow<[](float a) { return Fraction(a); }>("v_fract_f32"),
    LaneRow<[](float a, int32_t b) { return std::ldexp(a, std::clamp(b, -1000, 1000)); }>(
        "v_ldexp_f32"),
    LaneRow<[](float a) { return Significand(a); }>("v_frexp_mant_f32"),
    LaneRow<[](float a) { return Exponent(a); }>("v_frexp_exp_i32_f32"),
    LaneRow<[](float a, uint32_t b) { return IsClass<float, uint32_t>(a, b); }>("v_cmp_class_f32"),
    LaneRow<[](float a, uint32_t b) { return IsClass<float, uint32_t>(a, b); }>("v_cmpx_class_f32",
                                                                                kComparesExec),
    LaneRow<[](double a, double b) { return Canonical(a + b, a, b); }>("v_add_f64"),
    LaneRow<[](double a, double b) { return Canonical(a * b, a, b); }>("v_mul_f64"),
    LaneRow<[](double a, double b, double c) { return Canonical(std::fma(a, b, c), a, b, c); }>(
        "v_fma_f64"),
    LaneRow<[](double a, double b, double c) { return Canonical(std::fma(a, b, c), a, b, c); }>(
        "v_fmac_f64", kAccumulates),
    LaneRow<[](double a, double b) { return Smaller(a, b); }>("v_min_f64|v_min_num_f64"),
    LaneRow<[](double a, double b) { return Larger(a, b); }>("v_max_f64|v_max_num_f64"),
    LaneRow<[](double a, double b) { return Minimum(a, b); }>("v_minimum_f64"),
    LaneRow<[](double a, double b) { return Maximum(a, b); }>("v_maximum_f64"),
    LaneRow<[](double a) { return Quieted(std::floor(a)); }>("v_floor_f64"),
    LaneRow<[](double a) { return Quieted(std::ceil(a)); }>("v_ceil_f64"),
    LaneRow<[](double a) { return Quieted(std::trunc(a)); }>("v_trunc_f64"),
    LaneRow<[](double a) { return Quieted(std::nearbyint(a)); }>("v_rndne_f64"),
    LaneRow<[](double a) { return Fraction(a); }>("v_fract_f64"),
    LaneRow<[](double a, int32_t b) { return std::ldexp(a, std::clamp(b, -5000, 5000)); }>(
        "v_ldexp_f64"),
    LaneRow<[](double a) { return Significand(a); }>("v_frexp_mant_f64"),
    LaneRow<[](double a) { return Exponent(a); }>("v_frexp_exp_i32_f64"),
    LaneRow<[](double a, uint32_t b) { return IsClass<double, uint64_t>(a, b); }>(
        "v_cmp_class_f64"),
    LaneRow<[](double a, uint32_t b) { return IsClass<double, uint64_t>(a, b); }>(
        "v_cmpx_class_f64", kComparesExec),
};

}  // namespace

std::span<const Row> FloatRows() { return kFloatRows; }

}  // namespace fakeamd
