// Conversions of vectors. From floats to integers they cut towards zero and limit to what the type
// holds; NaN gives 0.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

template <class To>
To Limited(double x) {
  constexpr double kLow = std::numeric_limits<To>::min();
  constexpr double kHigh = std::numeric_limits<To>::max();
  if (std::isnan(x)) return 0;
  if (x <= kLow) return std::numeric_limits<To>::min();
  if (x >= kHigh) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

// Towards zero; what is too large becomes the largest number, not infinity.
uint16_t HalfTowardsZero(float x) {
  const Half nearest = ToHalf(x);
  if (std::isnan(x) || std::isinf(x)) return nearest.bits;
  if (std::abs(ToFloat(nearest)) > std::abs(x)) return static_cast<uint16_t>(nearest.bits - 1);
  return nearest.bits;
}

uint32_t Packed(uint32_t low, uint32_t high) { return (low & 0xffff) | high << 16; }

template <int byte>
float Byte(uint32_t x) {
  return static_cast<float>(x >> (8 * byte) & 0xff);
}

constexpr Row kConvertRows[] = {
    LaneRow<[](int32_t a) { return static_cast<float>(a); }>("v_cvt_f32_i32"),
    LaneRow<[](uint32_t a) { return static_cast<float>(a); }>("v_cvt_f32_u32"),
    LaneRow<[](int32_t a) { return static_cast<double>(a); }>("v_cvt_f64_i32"),
    LaneRow<[](uint32_t a) { return static_cast<double>(a); }>("v_cvt_f64_u32"),
    LaneRow<[](float a) { return Limited<int32_t>(a); }>("v_cvt_i32_f32"),
    LaneRow<[](float a) { return Limited<uint32_t>(a); }>("v_cvt_u32_f32"),
    LaneRow<[](double a) { return Limited<int32_t>(a); }>("v_cvt_i32_f64"),
    LaneRow<[](double a) { return Limited<uint32_t>(a); }>("v_cvt_u32_f64"),
    LaneRow<[](float a) { return Limited<int32_t>(std::floor(double{a})); }>(
        "v_cvt_flr_i32_f32|v_cvt_floor_i32_f32"),
    LaneRow<[](float a) { return Limited<int32_t>(std::floor(double{a} + 0.5)); }>(
        "v_cvt_rpi_i32_f32|v_cvt_nearest_i32_f32"),
    LaneRow<[](float a) { return double{Quieted(a)}; }>("v_cvt_f64_f32"),
    LaneRow<[](double a) { return static_cast<float>(Quieted(a)); }>("v_cvt_f32_f64"),
    LaneRow<[](float a) { return ToHalf(a); }>("v_cvt_f16_f32"),
    LaneRow<[](Half a) { return Quieted(ToFloat(a)); }>("v_cvt_f32_f16"),
    LaneRow<[](int16_t a) { return ToHalf(static_cast<float>(a)); }>("v_cvt_f16_i16"),
    LaneRow<[](uint16_t a) { return ToHalf(static_cast<float>(a)); }>("v_cvt_f16_u16"),
    LaneRow<[](Half a) { return Limited<int16_t>(ToFloat(a)); }>("v_cvt_i16_f16"),
    LaneRow<[](Half a) { return Limited<uint16_t>(ToFloat(a)); }>("v_cvt_u16_f16"),
    LaneRow<[](int16_t a) { return int32_t{a}; }>("v_cvt_i32_i16"),
    LaneRow<[](uint16_t a) { return uint32_t{a}; }>("v_cvt_u32_u16"),
    LaneRow<[](uint32_t a) { return Byte<0>(a); }>("v_cvt_f32_ubyte0"),
    LaneRow<[](uint32_t a) { return Byte<1>(a); }>("v_cvt_f32_ubyte1"),
    LaneRow<[](uint32_t a) { return Byte<2>(a); }>("v_cvt_f32_ubyte2"),
    LaneRow<[](uint32_t a) { return Byte<3>(a); }>("v_cvt_f32_ubyte3"),
    LaneRow<[](float a, float b) { return Packed(HalfTowardsZero(a), HalfTowardsZero(b)); }>(
        "v_cvt_pkrtz_f16_f32|v_cvt_pk_rtz_f16_f32"),
    LaneRow<[](uint32_t a, uint32_t b) {
      return Packed(std::min(a, 0xffffu), std::min(b, 0xffffu));
    }>("v_cvt_pk_u16_u32"),
    LaneRow<[](int32_t a, int32_t b) {
      return Packed(static_cast<uint32_t>(std::clamp(a, -0x8000, 0x7fff)),
                    static_cast<uint32_t>(std::clamp(b, -0x8000, 0x7fff)));
    }>("v_cvt_pk_i16_i32"),
};

}  // namespace

std::span<const Row> ConvertRows() { return kConvertRows; }

}  // namespace fakeamd
