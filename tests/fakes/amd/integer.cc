// Integer arithmetic of vectors.
#include <algorithm>
#include <limits>

#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

template <class T>
T Median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

u32 Low24(u32 x) { return x & 0xffffff; }
i32 Signed24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }

// An integer sum in more bits, cut or, with clamp, limited to what T holds.
template <class T, auto F>
void Saturating(Wave& w, const Instruction& i) {
  Sources<T, T> sources;
  sources.Fetch(w, i);
  if (w.failed()) return;
  alignas(64) Lanes low, high;
  for (u32 l = 0; l < w.lanes(); ++l) {
    i64 x = F(i64{GetLane<T>(sources.view[0], l)}, i64{GetLane<T>(sources.view[1], l)});
    if (i.clamp) {
      x = std::clamp<i64>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    }
    PutLane(low, high, l, static_cast<T>(x));
  }
  w.Put(i, 0, kTypeOf<T>, low, high);
}

constexpr auto kAdd = [](i64 a, i64 b) { return a + b; };
constexpr auto kSub = [](i64 a, i64 b) { return a - b; };
constexpr auto kSubRev = [](i64 a, i64 b) { return b - a; };

template <class T, auto F>
constexpr Row SaturatingRow(std::string_view names) {
  return {.names = names,
          .execute = Saturating<T, F>,
          .decode = DecodeVector,
          .result = {kTypeOf<T>, Type::kNone},
          .source = {kTypeOf<T>, kTypeOf<T>},
          .value = kSaturates};
}

constexpr Row kRows[] = {
    SaturatingRow<u32, kAdd>("v_add_u32|v_add_nc_u32"),
    SaturatingRow<u32, kSub>("v_sub_u32|v_sub_nc_u32"),
    SaturatingRow<u32, kSubRev>("v_subrev_u32|v_subrev_nc_u32"),
    SaturatingRow<i32, kAdd>("v_add_i32|v_add_nc_i32"),
    SaturatingRow<i32, kSub>("v_sub_i32|v_sub_nc_i32"),
    SaturatingRow<u16, kAdd>("v_add_u16|v_add_nc_u16"),
    SaturatingRow<u16, kSub>("v_sub_u16|v_sub_nc_u16"),
    SaturatingRow<u16, kSubRev>("v_subrev_u16"),
    SaturatingRow<i16, kAdd>("v_add_i16|v_add_nc_i16"),
    SaturatingRow<i16, kSub>("v_sub_i16|v_sub_nc_i16"),
    LaneRow<[](u32 a, u32 b) { return Carried<u32>{a + b, a + b < a}; }>("v_add_co_u32"),
    LaneRow<[](u32 a, u32 b) { return Carried<u32>{a - b, a < b}; }>("v_sub_co_u32"),
    LaneRow<[](u32 a, u32 b) { return Carried<u32>{b - a, b < a}; }>("v_subrev_co_u32"),
    LaneRow<[](u32 a, u32 b, bool c) {
      const u64 sum = u64{a} + b + c;
      return Carried<u32>{static_cast<u32>(sum), (sum >> 32) != 0};
    }>("v_addc_co_u32|v_add_co_ci_u32"),
    LaneRow<[](u32 a, u32 b, bool c) { return Carried<u32>{a - b - c, u64{a} < u64{b} + c}; }>(
        "v_subb_co_u32|v_sub_co_ci_u32"),
    LaneRow<[](u32 a, u32 b, bool c) { return Carried<u32>{b - a - c, u64{b} < u64{a} + c}; }>(
        "v_subbrev_co_u32|v_subrev_co_ci_u32"),
    LaneRow<[](u32 a, u32 b) { return a * b; }>("v_mul_lo_u32"),
    LaneRow<[](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }>("v_mul_hi_u32"),
    LaneRow<[](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); }>("v_mul_hi_i32"),
    LaneRow<[](u32 a, u32 b) { return Low24(a) * Low24(b); }>("v_mul_u32_u24"),
    LaneRow<[](i32 a, i32 b) {
      return static_cast<i32>(static_cast<u32>(i64{Signed24(a)} * Signed24(b)));
    }>("v_mul_i32_i24"),
    LaneRow<[](u32 a, u32 b) { return static_cast<u32>(u64{Low24(a)} * Low24(b) >> 32); }>(
        "v_mul_hi_u32_u24"),
    LaneRow<[](i32 a, i32 b) { return static_cast<i32>(i64{Signed24(a)} * Signed24(b) >> 32); }>(
        "v_mul_hi_i32_i24"),
    LaneRow<[](u32 a, u32 b, u32 c) { return Low24(a) * Low24(b) + c; }>("v_mad_u32_u24"),
    LaneRow<[](i32 a, i32 b, i32 c) {
      return static_cast<i32>(static_cast<u32>(i64{Signed24(a)} * Signed24(b) + c));
    }>("v_mad_i32_i24"),
    LaneRow<[](u32 a, u32 b, u64 c) {
      const u64 sum = u64{a} * b + c;
      return Carried<u64>{sum, sum < c};
    }>("v_mad_u64_u32|v_mad_co_u64_u32", kPassesHigh),
    LaneRow<[](i32 a, i32 b, i64 c) {
      i64 sum = 0;
      const bool over = __builtin_add_overflow(i64{a} * b, c, &sum);
      return Carried<i64>{sum, over};
    }>("v_mad_i64_i32|v_mad_co_i64_i32", kPassesHigh),
    LaneRow<[](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); }>("v_mul_lo_u16"),
    LaneRow<[](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); }>(
        "v_mad_u16|v_mad_legacy_u16"),
    LaneRow<[](i16 a, i16 b, i16 c) { return static_cast<i16>(i32{a} * b + c); }>("v_mad_i16"),
    LaneRow<[](u16 a, u16 b, u32 c) { return u32{a} * b + c; }>("v_mad_u32_u16"),
    LaneRow<[](i16 a, i16 b, i32 c) {
      return static_cast<i32>(static_cast<u32>(i32{a} * b) + static_cast<u32>(c));
    }>("v_mad_i32_i16"),
    LaneRow<[](i32 a, i32 b) { return std::min(a, b); }>("v_min_i32"),
    LaneRow<[](i32 a, i32 b) { return std::max(a, b); }>("v_max_i32"),
    LaneRow<[](u32 a, u32 b) { return std::min(a, b); }>("v_min_u32"),
    LaneRow<[](u32 a, u32 b) { return std::max(a, b); }>("v_max_u32"),
    LaneRow<[](i16 a, i16 b) { return std::min(a, b); }>("v_min_i16"),
    LaneRow<[](i16 a, i16 b) { return std::max(a, b); }>("v_max_i16"),
    LaneRow<[](u16 a, u16 b) { return std::min(a, b); }>("v_min_u16"),
    LaneRow<[](u16 a, u16 b) { return std::max(a, b); }>("v_max_u16"),
    LaneRow<[](i32 a, i32 b, i32 c) { return std::min({a, b, c}); }>("v_min3_i32"),
    LaneRow<[](i32 a, i32 b, i32 c) { return std::max({a, b, c}); }>("v_max3_i32"),
    LaneRow<[](i32 a, i32 b, i32 c) { return Median(a, b, c); }>("v_med3_i32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return std::min({a, b, c}); }>("v_min3_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return std::max({a, b, c}); }>("v_max3_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return Median(a, b, c); }>("v_med3_u32"),
    LaneRow<[](i16 a, i16 b, i16 c) { return std::min({a, b, c}); }>("v_min3_i16"),
    LaneRow<[](i16 a, i16 b, i16 c) { return std::max({a, b, c}); }>("v_max3_i16"),
    LaneRow<[](i16 a, i16 b, i16 c) { return Median(a, b, c); }>("v_med3_i16"),
    LaneRow<[](u16 a, u16 b, u16 c) { return std::min({a, b, c}); }>("v_min3_u16"),
    LaneRow<[](u16 a, u16 b, u16 c) { return std::max({a, b, c}); }>("v_max3_u16"),
    LaneRow<[](u16 a, u16 b, u16 c) { return Median(a, b, c); }>("v_med3_u16"),
    LaneRow<[](i32 a, i32 b, i32 c) { return std::min(std::max(a, b), c); }>("v_maxmin_i32"),
    LaneRow<[](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), c); }>("v_minmax_i32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); }>("v_maxmin_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), c); }>("v_minmax_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return a + b + c; }>("v_add3_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }>("v_lshl_add_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }>("v_add_lshl_u32"),
    LaneRow<[](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>("v_xad_u32"),
    // The shift is 0 to 4.
    LaneRow<[](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; }>("v_lshl_add_u64"),
    LaneRow<[](u32 a, u32 b, u32 c) { return std::max(a, b) - std::min(a, b) + c; }>("v_sad_u32"),
};

}  // namespace

std::span<const Row> IntegerRows() { return kRows; }

}  // namespace fakeamd
