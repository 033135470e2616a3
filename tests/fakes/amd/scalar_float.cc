// Scalar arithmetic of floats (gfx11.5 and gfx12).
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"
#include "tests/fakes/amd/scalar.h"

namespace fakeamd {
namespace {

template <class To>
To Bounded(double x) {
  if (std::isnan(x)) return 0;
  return static_cast<To>(
      std::clamp<double>(x, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
}

constexpr Row kScalarFloatRows[] = {
    ScalarRow<[](float a, float b) { return Canonical(a + b, a, b); }>("s_add_f32"),
    ScalarRow<[](float a, float b) { return Canonical(a - b, a, b); }>("s_sub_f32"),
    ScalarRow<[](float a, float b) { return Canonical(a * b, a, b); }>("s_mul_f32"),
    ScalarRow<[](float a, float b) { return Smaller(a, b); }>("s_min_f32|s_min_num_f32"),
    ScalarRow<[](float a, float b) { return Larger(a, b); }>("s_max_f32|s_max_num_f32"),
    ScalarRow<[](float a, float b) { return Minimum(a, b); }>("s_minimum_f32"),
    ScalarRow<[](float a, float b) { return Maximum(a, b); }>("s_maximum_f32"),
    ScalarRow<[](float a) { return Quieted(std::floor(a)); }>("s_floor_f32"),
    ScalarRow<[](float a) { return Quieted(std::ceil(a)); }>("s_ceil_f32"),
    ScalarRow<[](float a) { return Quieted(std::trunc(a)); }>("s_trunc_f32"),
    ScalarRow<[](float a) { return Quieted(std::nearbyint(a)); }>("s_rndne_f32"),
    ScalarRow<[](int32_t a) { return static_cast<float>(a); }>("s_cvt_f32_i32"),
    ScalarRow<[](uint32_t a) { return static_cast<float>(a); }>("s_cvt_f32_u32"),
    ScalarRow<[](float a) { return Bounded<int32_t>(a); }>("s_cvt_i32_f32"),
    ScalarRow<[](float a) { return Bounded<uint32_t>(a); }>("s_cvt_u32_f32"),
    ScalarRow<[](float a) { return uint32_t{ToHalf(a).bits}; }>("s_cvt_f16_f32"),
    ScalarRow<[](uint32_t a) { return Quieted(ToFloat(Half{static_cast<uint16_t>(a)})); }>(
        "s_cvt_f32_f16"),
    ScalarRow<[](float a, float b) { return Scc{a < b}; }>("s_cmp_lt_f32"),
    ScalarRow<[](float a, float b) { return Scc{a <= b}; }>("s_cmp_le_f32"),
    ScalarRow<[](float a, float b) { return Scc{a == b}; }>("s_cmp_eq_f32"),
    ScalarRow<[](float a, float b) { return Scc{(a > b)}; }>("s_cmp_gt_f32"),
    ScalarRow<[](float a, float b) { return Scc{(a >= b)}; }>("s_cmp_ge_f32"),
    ScalarRow<[](float a, float b) { return Scc{(a < b || a > b)}; }>("s_cmp_lg_f32"),
    ScalarRow<[](float a, float b) { return Scc{a != b}; }>("s_cmp_neq_f32"),
    ScalarRow<[](float a, float b) { return Scc{!(a < b)}; }>("s_cmp_nlt_f32"),
    ScalarRow<[](float a, float b) { return Scc{!(a <= b)}; }>("s_cmp_nle_f32"),
    ScalarRow<[](float a, float b) { return Scc{(!(a > b))}; }>("s_cmp_ngt_f32"),
    ScalarRow<[](float a, float b) { return Scc{(!(a >= b))}; }>("s_cmp_nge_f32"),
    ScalarRow<[](float a, float b) { return Scc{(!(a < b || a > b))}; }>("s_cmp_nlg_f32"),
    ScalarRow<[](float a, float b) { return Scc{a == a && b == b}; }>("s_cmp_o_f32"),
    ScalarRow<[](float a, float b) { return Scc{a != a || b != b}; }>("s_cmp_u_f32"),
};

// The product is a source of the sum that is the result: s_fmac_f32.
bool DecodeFmac(Decoder& d, const Row&) {
  return d.Expect(3) && d.ReadResult(0, Type::kF32) && d.ReadSource(1, Type::kF32) &&
         d.ReadSource(2, Type::kF32) && d.ReadSource(0, Type::kF32) && d.OnlyModifiers("");
}
constexpr Row MakeFmac() {
  Row row = ScalarRow<[](float a, float b, float c) { return Canonical(Fused(a, b, c), a, b, c); }>(
      "s_fmac_f32");
  row.decode = DecodeFmac;
  return row;
}
constexpr Row kScalarFmacRows[] = {
    MakeFmac(),
    ScalarRow<[](float a, float b, float c) { return Canonical(Fused(a, b, c), a, b, c); }>(
        "s_fmaak_f32|s_fmamk_f32"),
};

}  // namespace

std::span<const Row> ScalarFloatRows() { return kScalarFloatRows; }
std::span<const Row> ScalarFmacRows() { return kScalarFmacRows; }

}  // namespace fakeamd
