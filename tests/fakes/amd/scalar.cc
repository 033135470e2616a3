// Scalar arithmetic.
#include "tests/fakes/amd/scalar.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace fakeamd {
namespace {

i32 Wrapped(i64 x) { return static_cast<i32>(static_cast<u32>(x)); }
bool Overflows(i64 x) { return x != Wrapped(x); }

template <class T>
constexpr auto kShl = [](T a, u32 b) {
  const T x = a << (b & (sizeof(T) * 8 - 1));
  return WithScc<T>{x, x != 0};
};
template <class T>
constexpr auto kShr = [](T a, u32 b) {
  const T x = a >> (b & (sizeof(T) * 8 - 1));
  return WithScc<T>{x, x != 0};
};
template <u32 shift>
constexpr auto kShlAdd = [](u32 a, u32 b) {
  const u64 x = (u64{a} << shift) + b;
  return WithScc<u32>{static_cast<u32>(x), (x >> 32) != 0};
};

u32 FieldOf(u32 a, u32 b) {
  const u32 width = b >> 16 & 0x7f;
  const u32 x = a >> (b & 31);
  return width >= 32 ? x : x & ((1u << width) - 1);
}
u64 FieldOf64(u64 a, u32 b) {
  const u32 width = b >> 16 & 0x7f;
  const u64 x = a >> (b & 63);
  return width >= 64 ? x : x & ((u64{1} << width) - 1);
}
template <class T, class U>
T SignedField(U a, u32 b, U field) {
  const u32 width = b >> 16 & 0x7f;
  constexpr u32 kBits = sizeof(T) * 8;
  static_cast<void>(a);
  if (width == 0) return 0;
  if (width >= kBits) return static_cast<T>(field);
  return static_cast<T>(field << (kBits - width)) >> (kBits - width);
}

constexpr Row kScalarRows[] = {
    ScalarRow<[](u32 a, u32 b) { return WithScc<u32>{a + b, a + b < a}; }>(
        "s_add_u32|s_add_co_u32"),
    ScalarRow<[](u32 a, u32 b) { return WithScc<u32>{a - b, a < b}; }>("s_sub_u32|s_sub_co_u32"),
    ScalarRow<[](i32 a, i32 b) {
      return WithScc<i32>{Wrapped(i64{a} + b), Overflows(i64{a} + b)};
    }>("s_add_i32|s_add_co_i32"),
    ScalarRow<[](i32 a, i32 b) {
      return WithScc<i32>{Wrapped(i64{a} - b), Overflows(i64{a} - b)};
    }>("s_sub_i32|s_sub_co_i32"),
    ScalarRow<[](u32 a, u32 b, Scc c) {
      const u64 x = u64{a} + b + c.bit;
      return WithScc<u32>{static_cast<u32>(x), (x >> 32) != 0};
    }>("s_addc_u32|s_add_co_ci_u32"),
    ScalarRow<[](u32 a, u32 b, Scc c) {
      return WithScc<u32>{a - b - c.bit, u64{a} < u64{b} + c.bit};
    }>("s_subb_u32|s_sub_co_ci_u32"),
    ScalarRow<[](u64 a, u64 b) { return a + b; }>("s_add_u64|s_add_nc_u64"),
    ScalarRow<[](u64 a, u64 b) { return a - b; }>("s_sub_u64|s_sub_nc_u64"),
    ScalarRow<[](u64 a, u64 b) { return a * b; }>("s_mul_u64"),
    ScalarRow<[](i32 a) {
      const i32 x = a < 0 ? Wrapped(-i64{a}) : a;
      return WithScc<i32>{x, x != 0};
    }>("s_abs_i32"),
    ScalarRow<[](i32 a, i32 b) {
      const i32 x = Wrapped(std::abs(i64{a} - b));
      return WithScc<i32>{x, x != 0};
    }>("s_absdiff_i32"),
    ScalarRow<[](i32 a, i32 b) { return WithScc<i32>{std::min(a, b), a <= b}; }>("s_min_i32"),
    ScalarRow<[](i32 a, i32 b) { return WithScc<i32>{std::max(a, b), a >= b}; }>("s_max_i32"),
    ScalarRow<[](u32 a, u32 b) { return WithScc<u32>{std::min(a, b), a <= b}; }>("s_min_u32"),
    ScalarRow<[](u32 a, u32 b) { return WithScc<u32>{std::max(a, b), a >= b}; }>("s_max_u32"),
    ScalarRow<[](u32 a, u32 b) { return a * b; }>("s_mul_i32"),
    ScalarRow<[](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>("s_mul_hi_u32"),
    ScalarRow<[](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }>("s_mul_hi_i32"),
    ScalarRow<kShl<u32>>("s_lshl_b32"),
    ScalarRow<kShl<u64>>("s_lshl_b64"),
    ScalarRow<kShr<u32>>("s_lshr_b32"),
    ScalarRow<kShr<u64>>("s_lshr_b64"),
    ScalarRow<kShr<i32>>("s_ashr_i32"),
    ScalarRow<kShr<i64>>("s_ashr_i64"),
    ScalarRow<kShlAdd<1>>("s_lshl1_add_u32"),
    ScalarRow<kShlAdd<2>>("s_lshl2_add_u32"),
    ScalarRow<kShlAdd<3>>("s_lshl3_add_u32"),
    ScalarRow<kShlAdd<4>>("s_lshl4_add_u32"),
    ScalarRow<[](u32 a, u32 b) { return WithScc<u32>{FieldOf(a, b), FieldOf(a, b) != 0}; }>(
        "s_bfe_u32"),
    ScalarRow<[](u32 a, u32 b) {
      const i32 x = SignedField<i32, u32>(a, b, FieldOf(a, b));
      return WithScc<i32>{x, x != 0};
    }>("s_bfe_i32"),
    ScalarRow<[](u64 a, u32 b) { return WithScc<u64>{FieldOf64(a, b), FieldOf64(a, b) != 0}; }>(
        "s_bfe_u64"),
    ScalarRow<[](u64 a, u32 b) {
      const i64 x = SignedField<i64, u64>(a, b, FieldOf64(a, b));
      return WithScc<i64>{x, x != 0};
    }>("s_bfe_i64"),
    ScalarRow<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }>("s_bfm_b32"),
    ScalarRow<[](u32 a, u32 b) { return ((u64{1} << (a & 63)) - 1) << (b & 63); }>("s_bfm_b64"),
    ScalarRow<[](u32 a) { return a == 0 ? -1 : std::countl_zero(a); }>(
        "s_flbit_i32_b32|s_clz_i32_u32"),
    ScalarRow<[](u64 a) { return a == 0 ? -1 : std::countl_zero(a); }>(
        "s_flbit_i32_b64|s_clz_i32_u64"),
    ScalarRow<[](u32 a) { return a == 0 ? -1 : std::countr_zero(a); }>(
        "s_ff1_i32_b32|s_ctz_i32_b32"),
    ScalarRow<[](u64 a) { return a == 0 ? -1 : std::countr_zero(a); }>(
        "s_ff1_i32_b64|s_ctz_i32_b64"),
    ScalarRow<[](i32 a) {
      const u32 x = static_cast<u32>(a < 0 ? ~a : a);
      return x == 0 ? -1 : std::countl_zero(x);
    }>("s_flbit_i32|s_cls_i32"),
    ScalarRow<[](u32 a) { return WithScc<u32>{static_cast<u32>(std::popcount(a)), a != 0}; }>(
        "s_bcnt1_i32_b32"),
    ScalarRow<[](u64 a) { return WithScc<u32>{static_cast<u32>(std::popcount(a)), a != 0}; }>(
        "s_bcnt1_i32_b64"),
    ScalarRow<[](u32 a) {
      u32 x = 0;
      for (int b = 0; b < 32; ++b) x |= (a >> b & 1) << (31 - b);
      return x;
    }>("s_brev_b32"),
    ScalarRow<[](u64 a) {
      u64 x = 0;
      for (int b = 0; b < 64; ++b) x |= (a >> b & 1) << (63 - b);
      return x;
    }>("s_brev_b64"),
    ScalarRow<[](u32 a) { return static_cast<i32>(static_cast<int8_t>(a)); }>("s_sext_i32_i8"),
    ScalarRow<[](u32 a) { return static_cast<i32>(static_cast<int16_t>(a)); }>("s_sext_i32_i16"),
    ScalarRow<[](u32 a, u32 b) { return (a & 0xffff) | b << 16; }>("s_pack_ll_b32_b16"),
    ScalarRow<[](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }>("s_pack_lh_b32_b16"),
    ScalarRow<[](u32 a, u32 b) { return (a >> 16) | (b & 0xffff0000); }>("s_pack_hh_b32_b16"),
    ScalarRow<[](u32 a, u32 b) { return (a >> 16) | b << 16; }>("s_pack_hl_b32_b16"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a == b}; }>("s_cmp_eq_u32|s_cmp_eq_i32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a != b}; }>("s_cmp_lg_u32|s_cmp_lg_i32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{(a > b)}; }>("s_cmp_gt_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{(a >= b)}; }>("s_cmp_ge_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a < b}; }>("s_cmp_lt_u32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{a <= b}; }>("s_cmp_le_u32"),
    ScalarRow<[](i32 a, i32 b) { return Scc{(a > b)}; }>("s_cmp_gt_i32"),
    ScalarRow<[](i32 a, i32 b) { return Scc{(a >= b)}; }>("s_cmp_ge_i32"),
    ScalarRow<[](i32 a, i32 b) { return Scc{a < b}; }>("s_cmp_lt_i32"),
    ScalarRow<[](i32 a, i32 b) { return Scc{a <= b}; }>("s_cmp_le_i32"),
    ScalarRow<[](u64 a, u64 b) { return Scc{a == b}; }>("s_cmp_eq_u64"),
    ScalarRow<[](u64 a, u64 b) { return Scc{a != b}; }>("s_cmp_lg_u64"),
    ScalarRow<[](u32 a, u32 b) { return Scc{((a >> (b & 31) & 1) == 1)}; }>("s_bitcmp1_b32"),
    ScalarRow<[](u32 a, u32 b) { return Scc{((a >> (b & 31) & 1) == 0)}; }>("s_bitcmp0_b32"),
    ScalarRow<[](u64 a, u32 b) { return Scc{((a >> (b & 63) & 1) == 1)}; }>("s_bitcmp1_b64"),
    ScalarRow<[](u64 a, u32 b) { return Scc{((a >> (b & 63) & 1) == 0)}; }>("s_bitcmp0_b64"),
};

}  // namespace

std::span<const Row> ScalarRows() { return kScalarRows; }

}  // namespace fakeamd
