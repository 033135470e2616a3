// Arithmetic of halves of vectors. Computed in floats, whose precision is more than twice that of
// halves, sums, products and roots rounded twice are the same as rounded once; a fused product and
// sum is rounded to odd between.
#include <algorithm>
#include <cmath>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

float Wide(Half h) { return ToFloat(h); }
Half Fuse(Half a, Half b, Half c) { return ToHalf(FmaToOdd(Wide(a), Wide(b), Wide(c))); }
float ScaledBy(Half a, int16_t b) { return std::ldexp(Wide(a), b); }

float Mantissa(Half a) {
  int exponent = 0;
  return std::isfinite(Wide(a)) ? std::frexp(Wide(a), &exponent) : Wide(a);
}
int16_t PowerOf(Half a) {
  int exponent = 0;
  if (std::isfinite(Wide(a)) && Wide(a) != 0) std::frexp(Wide(a), &exponent);
  return static_cast<int16_t>(exponent);
}
Half FractionOf(Half a) {
  const float x = Wide(a);
  if (std::isinf(x)) return Half{0x7e00};
  const Half result = ToHalf(x - std::floor(x));
  return result.bits == 0x3c00 ? Half{0x3bff} : result;
}

bool ClassOf(Half h, uint32_t mask) {
  const uint32_t rest = h.bits & 0x7fff;
  int index = 0;
  if (rest > 0x7c00) {
    index = (rest & 0x200) != 0 ? 1 : 0;
  } else {
    const int size = rest == 0x7c00 ? 3 : rest == 0 ? 0 : rest >= 0x400 ? 2 : 1;
    index = (h.bits & 0x8000) != 0 ? 5 - size : 6 + size;
  }
  return (mask >> index & 1) != 0;
}

// Signalling halves are signalling floats after the exact conversion.
Half Least(Half a, Half b) { return ToHalf(Smaller(Wide(a), Wide(b))); }
Half Most(Half a, Half b) { return ToHalf(Larger(Wide(a), Wide(b))); }

constexpr Row kHalfRows[] = {
    LaneRow<[](Half a, Half b) { return ToHalf(Canonical(Wide(a) + Wide(b), Wide(a), Wide(b))); }>(
        "v_add_f16"),
    LaneRow<[](Half a, Half b) { return ToHalf(Canonical(Wide(a) - Wide(b), Wide(a), Wide(b))); }>(
        "v_sub_f16"),
    LaneRow<[](Half a, Half b) { return ToHalf(Canonical(Wide(b) - Wide(a), Wide(a), Wide(b))); }>(
        "v_subrev_f16"),
    LaneRow<[](Half a, Half b) { return ToHalf(Canonical(Wide(a) * Wide(b), Wide(a), Wide(b))); }>(
        "v_mul_f16"),
    LaneRow<[](Half a, Half b, Half c) { return Fuse(a, b, c); }>(
        "v_fma_f16|v_fmaak_f16|v_fmamk_f16"),
    LaneRow<[](Half a, Half b, Half c) { return Fuse(a, b, c); }>("v_fmac_f16", kAccumulates),
    LaneRow<[](Half a, Half b) { return Least(a, b); }>("v_min_f16|v_min_num_f16"),
    LaneRow<[](Half a, Half b) { return Most(a, b); }>("v_max_f16|v_max_num_f16"),
    LaneRow<[](Half a, Half b) { return ToHalf(Minimum(Wide(a), Wide(b))); }>("v_minimum_f16"),
    LaneRow<[](Half a, Half b) { return ToHalf(Maximum(Wide(a), Wide(b))); }>("v_maximum_f16"),
    LaneRow<[](Half a, Half b, Half c) { return Least(Least(a, b), c); }>(
        "v_min3_f16|v_min3_num_f16"),
    LaneRow<[](Half a, Half b, Half c) { return Most(Most(a, b), c); }>(
        "v_max3_f16|v_max3_num_f16"),
    LaneRow<[](Half a, Half b, Half c) { return ToHalf(Middle(Wide(a), Wide(b), Wide(c))); }>(
        "v_med3_f16|v_med3_num_f16"),
    LaneRow<[](Half a, Half b, Half c) { return Least(Most(a, b), c); }>(
        "v_maxmin_f16|v_maxmin_num_f16"),
    LaneRow<[](Half a, Half b, Half c) { return Most(Least(a, b), c); }>(
        "v_minmax_f16|v_minmax_num_f16"),
    LaneRow<[](Half a) { return ToHalf(std::floor(Wide(a))); }>("v_floor_f16"),
    LaneRow<[](Half a) { return ToHalf(std::ceil(Wide(a))); }>("v_ceil_f16"),
    LaneRow<[](Half a) { return ToHalf(std::trunc(Wide(a))); }>("v_trunc_f16"),
    LaneRow<[](Half a) { return ToHalf(std::nearbyint(Wide(a))); }>("v_rndne_f16"),
    LaneRow<[](Half a) { return FractionOf(a); }>("v_fract_f16"),
    LaneRow<[](Half a, int16_t b) { return ToHalf(ScaledBy(a, b)); }>("v_ldexp_f16"),
    LaneRow<[](Half a) { return ToHalf(Mantissa(a)); }>("v_frexp_mant_f16"),
    LaneRow<[](Half a) { return PowerOf(a); }>("v_frexp_exp_i16_f16"),
    LaneRow<[](Half a, uint32_t b) { return ClassOf(a, b); }>("v_cmp_class_f16"),
    LaneRow<[](Half a, uint32_t b) { return ClassOf(a, b); }>("v_cmpx_class_f16", kComparesExec),
    LaneRow<[](Half a, Half b) { return uint32_t{a.bits} | uint32_t{b.bits} << 16; }>(
        "v_pack_b32_f16", kPassesUndefined),
};

}  // namespace

std::span<const Row> HalfRows() { return kHalfRows; }

}  // namespace fakeamd
