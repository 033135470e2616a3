// Rows of scalar arithmetic, made from a plain function: the types of its arguments are those of
// the operands; `Scc` as an argument is the condition bit, `WithScc<T>` a result that sets it, and
// a result that is a Scc alone sets nothing else.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/wave.h"

namespace fakeamd {

struct Scc {
  bool bit = false;
};
template <class T>
struct WithScc {
  T value;
  bool scc;
};

template <class T>
constexpr bool kIsScc = std::is_same_v<T, Scc>;
template <class T>
struct ScalarValue {
  using Type = T;
  static constexpr bool kSetsScc = false;
};
template <class T>
struct ScalarValue<WithScc<T>> {
  using Type = T;
  static constexpr bool kSetsScc = true;
};

template <class T>
inline T FromBits(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else {
    return static_cast<T>(bits);
  }
}
template <class T>
inline uint64_t ToBits(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(value);
  } else {
    return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
  }
}

template <auto F, class Signature>
struct ScalarCall;

template <auto F, class R, class... A>
struct ScalarCall<F, R (*)(A...)> {
  static constexpr int kSources = ((kIsScc<A> ? 0 : 1) + ...);

  template <class T>
  static T Argument(Wave& w, const Instruction& i, int* at) {
    if constexpr (kIsScc<T>) {
      return Scc{w.Scc(i)};
    } else {
      return FromBits<T>(w.Scalar(i, i.source[static_cast<size_t>((*at)++)]));
    }
  }

  static void Execute(Wave& w, const Instruction& i) {
    int at = 0;
    // Braces evaluate from left to right.
    const std::tuple<A...> arguments{Argument<A>(w, i, &at)...};
    if (w.failed()) return;
    const R result = std::apply(F, arguments);
    if constexpr (kIsScc<R>) {
      w.PutScc(result.bit);
    } else if constexpr (ScalarValue<R>::kSetsScc) {
      w.PutScalar(i.result[0], ToBits(result.value));
      w.PutScc(result.scc);
    } else {
      w.PutScalar(i.result[0], ToBits(result));
    }
  }

  static constexpr Row Make(std::string_view names, uint32_t flags) {
    Row row = {.names = names, .execute = Execute, .decode = DecodeScalar, .value = flags};
    if constexpr (!kIsScc<R>) {
      row.result[0] = sizeof(typename ScalarValue<R>::Type) == 8 ? Type::kB64 : Type::kB32;
    }
    size_t at = 0;
    const auto add = [&](bool scc, Type type) {
      if (!scc) row.source[at++] = type;
    };
    (add(kIsScc<A>, sizeof(A) == 8             ? Type::kB64
                    : std::is_same_v<A, float> ? Type::kF32
                                               : Type::kB32),
     ...);
    return row;
  }
};

template <auto F>
constexpr Row ScalarRow(std::string_view names, uint32_t flags = 0) {
  return ScalarCall<F, decltype(+F)>::Make(names, flags);
}

}  // namespace fakeamd
