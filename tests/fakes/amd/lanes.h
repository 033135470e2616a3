// Rows of vector arithmetic, made from a plain function of one lane's values: the types of its
// arguments are those of the operands.
//
//   Lanes<[](float a, float b) { return a + b; }>("v_add_f32")
//
// Integers are what they are, `bool` is the lane's bit of a mask, `Half` a 16-bit float;
// `Carried<T>` is a value with a bit of a second result.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/half.h"
#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/wave.h"

namespace fakeamd {

template <class T>
struct Carried {
  T value;
  bool carry;
};

// Two 16-bit values of a register.
struct Pair {
  uint16_t low = 0;
  uint16_t high = 0;
};

// clang-format off
template <class T> constexpr Type kTypeOf = Type::kNone;
template <> inline constexpr Type kTypeOf<bool> = Type::kMask;
template <> inline constexpr Type kTypeOf<uint16_t> = Type::kB16;
template <> inline constexpr Type kTypeOf<int16_t> = Type::kI16;
template <> inline constexpr Type kTypeOf<Half> = Type::kF16;
template <> inline constexpr Type kTypeOf<Brain> = Type::kBF16;
template <> inline constexpr Type kTypeOf<uint32_t> = Type::kB32;
template <> inline constexpr Type kTypeOf<int32_t> = Type::kI32;
template <> inline constexpr Type kTypeOf<float> = Type::kF32;
template <> inline constexpr Type kTypeOf<uint64_t> = Type::kB64;
template <> inline constexpr Type kTypeOf<int64_t> = Type::kI64;
template <> inline constexpr Type kTypeOf<double> = Type::kF64;
template <class T> constexpr Type kTypeOf<Carried<T>> = kTypeOf<T>;
template <class T> constexpr bool kCarries = false;
template <class T> constexpr bool kCarries<Carried<T>> = true;
// clang-format on

template <class T>
inline T GetLane(const LaneView& view, uint32_t l) {
  if constexpr (std::is_same_v<T, bool>) {
    return view.low[l] != 0;
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) {
    return T{static_cast<uint16_t>(view.low[l])};
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<T>(view.low[l]);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(view.low[l]);
  } else {
    return std::bit_cast<T>(view.low[l] | uint64_t{view.high[l]} << 32);
  }
}

template <class T>
inline void PutLane(uint32_t* low, uint32_t* high, uint32_t l, T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) {
    low[l] = value.bits;
  } else if constexpr (sizeof(T) == 2) {
    low[l] = static_cast<uint16_t>(value);
  } else if constexpr (sizeof(T) == 4) {
    low[l] = std::bit_cast<uint32_t>(value);
  } else {
    const auto bits = std::bit_cast<uint64_t>(value);
    low[l] = static_cast<uint32_t>(bits);
    high[l] = static_cast<uint32_t>(bits >> 32);
  }
}

// The sources of an instruction as views, with room for those that are not in place.
template <class... A>
struct Sources {
  static constexpr size_t kCount = sizeof...(A);
  alignas(64) Lanes room[kCount][2];
  LaneView view[kCount];

  void Fetch(Wave& w, const Instruction& i) {
    int k = 0;
    ((view[k] = w.Fetch(i, k, kTypeOf<A>, room[k][0], room[k][1]), ++k), ...);
  }
};

template <auto F, class Signature>
struct LaneLoop;

template <auto F, class R, class... A>
struct LaneLoop<F, R (*)(A...)> {
  template <size_t... k>
  static R Call(const LaneView* view, uint32_t l, std::index_sequence<k...>) {
    return F(GetLane<A>(view[k], l)...);
  }

  static void Execute(Wave& w, const Instruction& i) {
    Sources<A...> sources;
    sources.Fetch(w, i);
    if (w.failed()) return;
    alignas(64) Lanes low, high;
    constexpr auto kIndices = std::index_sequence_for<A...>();
    const uint32_t lanes = w.lanes() & ~31u;
    if constexpr (std::is_same_v<R, bool>) {
      uint64_t mask = 0;
      for (uint32_t l = 0; l < lanes; ++l) low[l] = Call(sources.view, l, kIndices) ? 1 : 0;
      for (uint32_t l = 0; l < lanes; ++l) mask |= uint64_t{low[l]} << l;
      if ((i.row->value & kComparesExec) != 0) {
        mask &= w.exec();
        if (i.results != 0 && i.result[0].reg != kExec) w.PutMask(i, 0, mask);
        w.SetExec(mask);
      } else {
        w.PutMask(i, 0, mask);
      }
    } else if constexpr (kCarries<R>) {
      uint64_t mask = 0;
      for (uint32_t l = 0; l < lanes; ++l) {
        const R result = Call(sources.view, l, kIndices);
        PutLane(low, high, l, result.value);
        mask |= uint64_t{result.carry} << l;
      }
      w.Put(i, 0, kTypeOf<R>, low, high);
      w.PutMask(i, 1, mask);
    } else {
      for (uint32_t l = 0; l < lanes; ++l) {
        PutLane(low, high, l, Call(sources.view, l, kIndices));
      }
      w.Put(i, 0, kTypeOf<R>, low, high);
    }
  }

  static constexpr Row Make(std::string_view names, uint32_t flags) {
    return {.names = names,
            .execute = Execute,
            .decode = DecodeVector,
            .result = {kTypeOf<R>, kCarries<R> ? Type::kMask : Type::kNone},
            .source = {kTypeOf<A>...},
            .value = flags};
  }
};

template <auto F>
constexpr Row LaneRow(std::string_view names, uint32_t flags = 0) {
  return LaneLoop<F, decltype(+F)>::Make(names, flags);
}

// Results of floating-point arithmetic that are NaN without a NaN among the operands have this
// sign.
template <class... A>
inline float Canonical(float result, A... operands) {
  const bool given = ((operands != operands) || ...);
  return result != result && !given ? std::bit_cast<float>(0x7fc00000u) : result;
}
template <class... A>
inline double Canonical(double result, A... operands) {
  const bool given = ((operands != operands) || ...);
  return result != result && !given ? std::bit_cast<double>(uint64_t{0x7ff8} << 48) : result;
}

}  // namespace fakeamd
