// Instructions on two values of a register or pair (VOP3P), of which op_sel and op_sel_hi say which
// half of a source each half of the result takes; mixed f16 and f32; dot products.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/lanes.h"

namespace fakeamd {
namespace {

// Half `h` of source k in lane l, negated as the instruction says.
template <class T>
T PartOf(const Instruction& i, const LaneView& view, int k, int h, uint32_t l) {
  const bool upper = ((h == 0 ? i.op_sel : i.op_sel_hi) >> k & 1) != 0;
  const bool negate = ((h == 0 ? i.negate_low : i.negate_high) >> k & 1) != 0;
  auto bits = static_cast<uint16_t>(view.low[l] >> (upper ? 16 : 0));
  if constexpr (std::is_same_v<T, Half>) {
    return Half{static_cast<uint16_t>(negate ? bits ^ 0x8000 : bits)};
  } else {
    return static_cast<T>(bits);
  }
}

template <auto F, class Signature>
struct PairLoop;

template <auto F, class T, class... A>
struct PairLoop<F, T (*)(A...)> {
  template <size_t... k>
  static uint32_t Half16(const Instruction& i, const LaneView* view, int h, uint32_t l,
                         std::index_sequence<k...>) {
    T x = F(PartOf<A>(i, view[k], static_cast<int>(k), h, l)...);
    if constexpr (std::is_same_v<T, Half>) {
      if (i.clamp) {
        const float f = ToFloat(x);
        x = f > 0 ? (f < 1 ? x : Half{0x3c00}) : Half{0};
      }
      return x.bits;
    } else {
      return static_cast<uint16_t>(x);
    }
  }

  static void Execute(Wave& w, const Instruction& i) {
    alignas(64) Lanes room[sizeof...(A)];
    LaneView view[sizeof...(A)];
    for (size_t k = 0; k < sizeof...(A); ++k) {
      view[k] = w.Fetch(i, static_cast<int>(k), Type::kPairF16, room[k], nullptr);
    }
    if (w.failed()) return;
    alignas(64) Lanes low;
    constexpr auto kIndices = std::index_sequence_for<A...>();
    for (uint32_t l = 0; l < w.lanes(); ++l) {
      low[l] = Half16(i, view, 0, l, kIndices) | Half16(i, view, 1, l, kIndices) << 16;
    }
    w.Put(i, 0, Type::kPairF16, low, nullptr);
  }

  static constexpr Row Make(std::string_view names) {
    return {.names = names,
            .execute = Execute,
            .decode = DecodeVector,
            .result = {Type::kPairF16, Type::kNone},
            .source = {(static_cast<void>(sizeof(A)), Type::kPairF16)...},
            .value = kSaturates};  // it clamps itself
  }
};

template <auto F>
constexpr Row PairRow(std::string_view names) {
  return PairLoop<F, decltype(+F)>::Make(names);
}

// Sums of integers, limited with clamp.
template <class T, auto F>
void PairSum(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[2];
  LaneView view[2];
  for (int k = 0; k < 2; ++k) view[k] = w.Fetch(i, k, Type::kPair16, room[k], nullptr);
  if (w.failed()) return;
  alignas(64) Lanes low;
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    low[l] = 0;
    for (int h = 0; h < 2; ++h) {
      int32_t x = F(PartOf<T>(i, view[0], 0, h, l), PartOf<T>(i, view[1], 1, h, l));
      if (i.clamp) {
        x = std::clamp<int32_t>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
      }
      low[l] |= uint32_t{static_cast<uint16_t>(x)} << (16 * h);
    }
  }
  w.Put(i, 0, Type::kPair16, low, nullptr);
}
template <class T, auto F>
constexpr Row PairSumRow(std::string_view names) {
  return {.names = names,
          .execute = PairSum<T, F>,
          .decode = DecodeVector,
          .result = {Type::kPair16, Type::kNone},
          .source = {Type::kPair16, Type::kPair16},
          .value = kSaturates};
}
constexpr auto kPlus = [](int32_t a, int32_t b) { return a + b; };
constexpr auto kMinus = [](int32_t a, int32_t b) { return a - b; };

// Two floats in a pair of registers.
template <auto F, int count>
void FloatPair(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[count][2];
  LaneView view[count];
  for (int k = 0; k < count; ++k) view[k] = w.Fetch(i, k, Type::kPairF32, room[k][0], room[k][1]);
  if (w.failed()) return;
  alignas(64) Lanes out[2];
  for (int h = 0; h < 2; ++h) {
    for (uint32_t l = 0; l < w.lanes(); ++l) {
      float x[3] = {};
      for (int k = 0; k < count; ++k) {
        const bool upper = ((h == 0 ? i.op_sel : i.op_sel_hi) >> k & 1) != 0;
        const bool negate = ((h == 0 ? i.negate_low : i.negate_high) >> k & 1) != 0;
        const uint32_t bits = upper ? view[k].high[l] : view[k].low[l];
        x[k] = std::bit_cast<float>(negate ? bits ^ 0x80000000u : bits);
      }
      out[h][l] = std::bit_cast<uint32_t>(F(x[0], x[1], x[2]));
    }
  }
  w.Put(i, 0, Type::kPairF32, out[0], out[1]);
}
template <auto F, int count>
constexpr Row FloatPairRow(std::string_view names, uint32_t modifiers = 0) {
  Row row = {.names = names,
             .execute = FloatPair<F, count>,
             .decode = DecodeVector,
             .result = {Type::kPairF32, Type::kNone},
             .source = {Type::kPairF32, count > 1 ? Type::kPairF32 : Type::kNone,
                        count > 2 ? Type::kPairF32 : Type::kNone},
             .value = modifiers};
  return row;
}

// v_fma_mix: each source is a float or, where op_sel_hi says so, the half that op_sel says. The
// result is a float, which mixlo and mixhi round a second time.
void Mix(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[3];
  LaneView view[3];
  for (int k = 0; k < 3; ++k) view[k] = w.Fetch(i, k, Type::kMix, room[k], nullptr);
  if (w.failed()) return;
  alignas(64) Lanes low;
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    float x[3];
    for (int k = 0; k < 3; ++k) {
      const bool half = (i.op_sel_hi >> k & 1) != 0;
      const bool upper = (i.op_sel >> k & 1) != 0;
      x[k] = half ? ToFloat(Half{static_cast<uint16_t>(view[k].low[l] >> (upper ? 16 : 0))})
                  : std::bit_cast<float>(view[k].low[l]);
      // In this encoding these bits are the signs: negate, and take the magnitude.
      if ((i.negate_high >> k & 1) != 0) x[k] = std::abs(x[k]);
      if ((i.negate_low >> k & 1) != 0) x[k] = -x[k];
    }
    const auto single = static_cast<float>(FmaToOdd(x[0], x[1], x[2]));
    if (i.row->value == 0) {
      low[l] = std::bit_cast<uint32_t>(single);
      if (i.clamp) low[l] = std::bit_cast<uint32_t>(single > 0 ? std::min(single, 1.0f) : 0.0f);
      continue;
    }
    const uint32_t old = w.Vector(i.result[0].reg)[l];
    uint32_t half = ToHalf(single).bits;
    if (i.clamp) half = single > 0 ? std::min(half, 0x3c00u) : 0;
    low[l] = (i.row->value & 64) != 0 ? half << 16 | (old & 0xffff) : half | (old & 0xffff0000);
  }
  Instruction plain = {};
  plain.row = i.row;
  plain.result = i.result;
  w.Put(plain, 0, Type::kB32, low, nullptr);
}

constexpr Row MixRow(std::string_view names, uint32_t value) {
  return {.names = names,
          .execute = Mix,
          .decode = DecodeVector,
          .result = {Type::kMix, Type::kNone},
          .source = {Type::kMix, Type::kMix, Type::kMix},
          .value = value};
}

// c + a.low * b.low + a.high * b.high: products are exact, the sums one rounding after another.
template <class T>
uint32_t Dot2(uint32_t a, uint32_t b, uint32_t c) {
  const auto part = [](uint32_t x, int h) {
    return double{ToFloat(T{static_cast<uint16_t>(x >> (16 * h))})};
  };
  const float first = static_cast<float>(FmaToOdd(part(a, 0), part(b, 0), std::bit_cast<float>(c)));
  return std::bit_cast<uint32_t>(static_cast<float>(FmaToOdd(part(a, 1), part(b, 1), first)));
}

// c plus the products of four bytes of a by those of b, limited with clamp. From gfx11 on, the bits
// of neg_lo say which source is signed.
enum class Signs : uint8_t { kNone, kBoth, kSaid };

template <Signs signs>
void Dot4(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[3];
  LaneView view[3];
  for (int k = 0; k < 3; ++k) view[k] = w.Fetch(i, k, Type::kB32, room[k], nullptr);
  if (w.failed()) return;
  const auto is_signed = [&](int k) {
    return signs == Signs::kBoth || (signs == Signs::kSaid && (i.negate_low >> k & 1) != 0);
  };
  const auto byte = [&](int k, uint32_t l, int n) -> int64_t {
    const auto bits = static_cast<uint8_t>(view[k].low[l] >> (8 * n));
    return is_signed(k) ? int64_t{static_cast<int8_t>(bits)} : int64_t{bits};
  };
  alignas(64) Lanes low;
  for (uint32_t l = 0; l < w.lanes(); ++l) {
    constexpr bool kUnsigned = signs == Signs::kNone;
    int64_t sum = kUnsigned ? int64_t{view[2].low[l]} : static_cast<int32_t>(view[2].low[l]);
    for (int n = 0; n < 4; ++n) sum += byte(0, l, n) * byte(1, l, n);
    if (i.clamp) {
      sum = kUnsigned ? std::min<int64_t>(sum, std::numeric_limits<uint32_t>::max())
                      : std::clamp<int64_t>(sum, std::numeric_limits<int32_t>::min(),
                                            std::numeric_limits<int32_t>::max());
    }
    low[l] = static_cast<uint32_t>(sum);
  }
  w.Put(i, 0, Type::kB32, low, nullptr);
}

bool DecodeDot4(Decoder& d, const Row& row) {
  if (!DecodeVector(d, row)) return false;
  const Instruction& out = d.out();
  const bool plain = out.op_sel == 0 && out.op_sel_hi == 7 && out.negate_high == 0 &&
                     (out.negate_low == 0 || row.execute == Dot4<Signs::kSaid>);
  return plain || d.Fail("these modifiers are not supported");
}

template <Signs signs>
constexpr Row Dot4Row(std::string_view names, uint32_t of_sources = 0) {
  return {.names = names,
          .execute = Dot4<signs>,
          .decode = DecodeDot4,
          .result = {Type::kB32, Type::kNone},
          .source = {Type::kB32, Type::kB32, Type::kB32},
          .value = of_sources | kSaturates};
}

constexpr Row kPackedRows[] = {
    PairRow<[](Half a, Half b) { return ToHalf(ToFloat(a) + ToFloat(b)); }>("v_pk_add_f16"),
    PairRow<[](Half a, Half b) { return ToHalf(ToFloat(a) * ToFloat(b)); }>("v_pk_mul_f16"),
    PairRow<[](Half a, Half b, Half c) {
      return ToHalf(FmaToOdd(ToFloat(a), ToFloat(b), ToFloat(c)));
    }>("v_pk_fma_f16"),
    PairRow<[](Half a, Half b) { return ToHalf(Smaller(ToFloat(a), ToFloat(b))); }>(
        "v_pk_min_f16|v_pk_min_num_f16"),
    PairRow<[](Half a, Half b) { return ToHalf(Larger(ToFloat(a), ToFloat(b))); }>(
        "v_pk_max_f16|v_pk_max_num_f16"),
    PairRow<[](Half a, Half b) { return ToHalf(Minimum(ToFloat(a), ToFloat(b))); }>(
        "v_pk_minimum_f16"),
    PairRow<[](Half a, Half b) { return ToHalf(Maximum(ToFloat(a), ToFloat(b))); }>(
        "v_pk_maximum_f16"),
    PairRow<[](uint16_t a, uint16_t b) { return static_cast<uint16_t>(uint32_t{a} * b); }>(
        "v_pk_mul_lo_u16"),
    PairRow<[](uint16_t a, uint16_t b, uint16_t c) {
      return static_cast<uint16_t>(uint32_t{a} * b + c);
    }>("v_pk_mad_u16|v_pk_mad_i16"),
    PairRow<[](int16_t a, int16_t b) { return std::min(a, b); }>("v_pk_min_i16"),
    PairRow<[](int16_t a, int16_t b) { return std::max(a, b); }>("v_pk_max_i16"),
    PairRow<[](uint16_t a, uint16_t b) { return std::min(a, b); }>("v_pk_min_u16"),
    PairRow<[](uint16_t a, uint16_t b) { return std::max(a, b); }>("v_pk_max_u16"),
    PairRow<[](uint16_t a, uint16_t b) { return static_cast<uint16_t>(b << (a & 15)); }>(
        "v_pk_lshlrev_b16"),
    PairRow<[](uint16_t a, uint16_t b) { return static_cast<uint16_t>(b >> (a & 15)); }>(
        "v_pk_lshrrev_b16"),
    PairRow<[](uint16_t a, int16_t b) { return static_cast<int16_t>(b >> (a & 15)); }>(
        "v_pk_ashrrev_i16"),
    PairSumRow<uint16_t, kPlus>("v_pk_add_u16"),
    PairSumRow<uint16_t, kMinus>("v_pk_sub_u16"),
    PairSumRow<int16_t, kPlus>("v_pk_add_i16"),
    PairSumRow<int16_t, kMinus>("v_pk_sub_i16"),
    FloatPairRow<[](float a, float b, float) { return Canonical(a + b, a, b); }, 2>("v_pk_add_f32"),
    FloatPairRow<[](float a, float b, float) { return Canonical(a * b, a, b); }, 2>("v_pk_mul_f32"),
    FloatPairRow<[](float a, float b, float c) { return Canonical(Fused(a, b, c), a, b, c); }, 3>(
        "v_pk_fma_f32"),
    MixRow("v_fma_mix_f32", 0),
    MixRow("v_fma_mixlo_f16", 32),
    MixRow("v_fma_mixhi_f16", 64),
    LaneRow<[](uint32_t a, uint32_t b, uint32_t c) { return Dot2<Half>(a, b, c); }>(
        "v_dot2_f32_f16"),
    LaneRow<[](uint32_t a, uint32_t b, uint32_t c) { return Dot2<Brain>(a, b, c); }>(
        "v_dot2_f32_bf16"),
    LaneRow<[](uint32_t a, uint32_t b, uint32_t c) { return Dot2<Half>(a, b, c); }>(
        "v_dot2c_f32_f16|v_dot2acc_f32_f16", kAccumulates),
    LaneRow<[](uint32_t a, uint32_t b, uint32_t c) { return Dot2<Brain>(a, b, c); }>(
        "v_dot2c_f32_bf16|v_dot2acc_f32_bf16", kAccumulates),
    Dot4Row<Signs::kNone>("v_dot4_u32_u8"),
    Dot4Row<Signs::kBoth>("v_dot4_i32_i8"),
    Dot4Row<Signs::kBoth>("v_dot4c_i32_i8", kAccumulates),
    Dot4Row<Signs::kSaid>("v_dot4_i32_iu8"),
};

// Word 0 of the result from source 0 and word 1 from source 1, each with its choice.
void MovePair(Wave& w, const Instruction& i) {
  alignas(64) Lanes room[2][2];
  LaneView view[2];
  for (int k = 0; k < 2; ++k) view[k] = w.Fetch(i, k, Type::kPairF32, room[k][0], room[k][1]);
  if (w.failed()) return;
  alignas(64) Lanes out[2];
  const LaneView& first = view[0];
  const LaneView& second = view[1];
  std::copy_n((i.op_sel & 1) != 0 ? first.high : first.low, w.lanes(), out[0]);
  std::copy_n((i.op_sel & 2) != 0 ? second.high : second.low, w.lanes(), out[1]);
  w.Put(i, 0, Type::kPairF32, out[0], out[1]);
}

constexpr Row kMovePairRows[] = {
    {.names = "v_pk_mov_b32",
     .execute = MovePair,
     .decode = DecodeVector,
     .result = {Type::kPairF32, Type::kNone},
     .source = {Type::kPairF32, Type::kPairF32},
     .value = kPassesUndefined},
};

}  // namespace

std::span<const Row> PackedRows() { return kPackedRows; }
std::span<const Row> PackedMoveRows() { return kMovePairRows; }

}  // namespace fakeamd
