// The ops of lane_ops.h, lifted from C++ values to lanes by a template, in tables by element type.
// A narrow float is a type whose values are computed as float and rounded into its code at the end
// of each op. CAST has no C++ types at all: it goes by way of the exact value.
#include "engine/reference/lane.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/reference/lane_exact.h"
#include "engine/reference/lane_ops.h"

namespace telegrad::reference {
namespace {

static_assert(std::endian::native == std::endian::little, "lanes are little-endian memory");
static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

// The C++ type of a narrow float.
template <DType kDType>
struct Narrow {};

// What its ops are computed in.
template <typename T>
struct ComputedIn {
  using Type = T;
};
template <DType kDType>
struct ComputedIn<Narrow<kDType>> {
  using Type = float;
};
template <typename T>
using Computed = typename ComputedIn<T>::Type;

template <typename T>
Lane Bits(T value) {
  Lane lane = 0;
  std::memcpy(&lane, &value, sizeof(T));
  return lane;
}

// A lane of type T as the value that ops compute with, and back.
template <typename T>
struct Lanes {
  static T Get(Lane lane) {
    if constexpr (std::is_same_v<T, bool>) {
      return lane != 0;
    } else {
      T value;
      std::memcpy(&value, &lane, sizeof(T));
      return value;
    }
  }
  static Lane Put(T value) { return Bits(value); }
};
template <DType kDType>
struct Lanes<Narrow<kDType>> {
  static float Get(Lane lane) {
    const Exact x = Decode(Info(kDType), lane);
    if (x.kind == Exact::kNan) return std::numeric_limits<float>::quiet_NaN();
    const float value = x.kind == Exact::kInfinite
                            ? std::numeric_limits<float>::infinity()
                            : std::ldexp(static_cast<float>(x.magnitude), x.exponent);
    return x.negative ? -value : value;
  }
  static Lane Put(float value) {
    return EncodeFloat(Info(kDType), Decode(Info(DType::kFloat32), Bits(value)));
  }
};

// F on lanes of type T; its result is of that type or bool.
template <typename T, auto F>
struct Lift {
  static Computed<T> Get(Lane lane) { return Lanes<T>::Get(lane); }
  static Lane Call(Lane x, Lane y, Lane z) {
    using C = Computed<T>;
    if constexpr (std::is_invocable_v<decltype(F), C, C, C>) {
      return Put(F(Get(x), Get(y), Get(z)));
    } else if constexpr (std::is_invocable_v<decltype(F), C, C>) {
      return Put(F(Get(x), Get(y)));
    } else {
      return Put(F(Get(x)));
    }
  }
  template <typename R>
  static Lane Put(R value) {
    if constexpr (std::is_same_v<R, bool>) {
      return value ? 1 : 0;
    } else {
      return Lanes<T>::Put(value);
    }
  }
};

Lane Same(Lane x, Lane, Lane) { return x; }
Lane Second(Lane, Lane y, Lane) { return y; }
Lane Where(Lane x, Lane y, Lane z) { return x != 0 ? y : z; }

uint64_t LowBits(DType dtype) { return ~uint64_t{0} >> (64 - Info(dtype).bits); }

template <DType kFrom, DType kTo>
Lane Cast(Lane lane, Lane, Lane) {
  const DTypeInfo &from = Info(kFrom), &to = Info(kTo);
  const Exact x = Decode(from, lane);
  if (IsBool(kTo)) return x.kind != Exact::kFinite || x.magnitude != 0 ? 1 : 0;
  if (IsFloat(kTo)) return EncodeFloat(to, x);
  if (IsFloat(kFrom)) return EncodeSaturated(to, x);
  return (x.negative ? 0 - x.magnitude : x.magnitude) & LowBits(kTo);
}

// --- tables ---

template <DType kDType>
using Constant = std::integral_constant<DType, kDType>;

// Calls `f` with the dtype as a constant.
template <typename F>
LaneFn VisitDType(DType dtype, F f) {
  switch (dtype) {
#define DTYPE(name, ...) \
  case DType::name:      \
    return f(Constant<DType::name>{});
#include "engine/types/dtypes.def"
#undef DTYPE
    case DType::kVoid:
      return nullptr;
  }
  return nullptr;
}

// Calls `f` with a value of the C++ type of `dtype`; storage types have none.
template <typename F>
LaneFn Visit(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
      return f(bool{});
    case DType::kInt8:
      return f(int8_t{});
    case DType::kInt16:
      return f(int16_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
    case DType::kUInt8:
      return f(uint8_t{});
    case DType::kUInt16:
      return f(uint16_t{});
    case DType::kUInt32:
      return f(uint32_t{});
    case DType::kUInt64:
      return f(uint64_t{});
    case DType::kFloat16:
      return f(Narrow<DType::kFloat16>{});
    case DType::kBFloat16:
      return f(Narrow<DType::kBFloat16>{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat8E4M3:
      return f(Narrow<DType::kFloat8E4M3>{});
    case DType::kFloat8E5M2:
      return f(Narrow<DType::kFloat8E5M2>{});
    case DType::kFloat8E4M3Fnuz:
      return f(Narrow<DType::kFloat8E4M3Fnuz>{});
    case DType::kFloat8E5M2Fnuz:
      return f(Narrow<DType::kFloat8E5M2Fnuz>{});
    default:
      return nullptr;
  }
}

template <typename T>
LaneFn FloatFn(Op op) {
  using C = Computed<T>;
  switch (op) {
    case Op::kExp2:
      return Lift<T, &lane_ops::Exp2<C>>::Call;
    case Op::kLog2:
      return Lift<T, &lane_ops::Log2<C>>::Call;
    case Op::kSin:
      return Lift<T, &lane_ops::Sin<C>>::Call;
    case Op::kSqrt:
      return Lift<T, &lane_ops::Sqrt<C>>::Call;
    case Op::kRecip:
      return Lift<T, &lane_ops::Recip<C>>::Call;
    case Op::kTrunc:
      return Lift<T, &lane_ops::Trunc<C>>::Call;
    case Op::kFloor:
      return Lift<T, &lane_ops::Floor<C>>::Call;
    case Op::kFDiv:
      return Lift<T, &lane_ops::FDiv<C>>::Call;
    case Op::kPow:
      return Lift<T, &lane_ops::Pow<C>>::Call;
    default:
      return nullptr;
  }
}

template <typename T>
LaneFn LogicFn(Op op) {
  switch (op) {
    case Op::kAnd:
      return Lift<T, &lane_ops::And<T>>::Call;
    case Op::kOr:
      return Lift<T, &lane_ops::Or<T>>::Call;
    case Op::kXor:
      return Lift<T, &lane_ops::Xor<T>>::Call;
    default:
      return nullptr;
  }
}

template <typename T>
LaneFn IntFn(Op op) {
  switch (op) {
    case Op::kFloorDiv:
      return Lift<T, &lane_ops::FloorDiv<T>>::Call;
    case Op::kFloorMod:
      return Lift<T, &lane_ops::FloorMod<T>>::Call;
    case Op::kCDiv:
      return Lift<T, &lane_ops::CDiv<T>>::Call;
    case Op::kCMod:
      return Lift<T, &lane_ops::CMod<T>>::Call;
    case Op::kShl:
      return Lift<T, &lane_ops::Shl<T>>::Call;
    case Op::kShr:
      return Lift<T, &lane_ops::Shr<T>>::Call;
    case Op::kDot4:
      return std::is_same_v<T, int32_t> ? Lift<int32_t, &lane_ops::Dot4>::Call : nullptr;
    case Op::kThreefry:
      return std::is_same_v<T, uint64_t> ? Lift<uint64_t, &lane_ops::Threefry>::Call : nullptr;
    default:
      return LogicFn<T>(op);
  }
}

template <typename T>
LaneFn ArithFn(Op op) {
  using C = Computed<T>;
  switch (op) {
    case Op::kNeg:
      return Lift<T, &lane_ops::Neg<C>>::Call;
    case Op::kAdd:
      return Lift<T, &lane_ops::Add<C>>::Call;
    case Op::kSub:
      return Lift<T, &lane_ops::Sub<C>>::Call;
    case Op::kMul:
      return Lift<T, &lane_ops::Mul<C>>::Call;
    case Op::kMax:
      return Lift<T, &lane_ops::Max<C>>::Call;
    case Op::kMulAcc:
      return Lift<T, &lane_ops::MulAcc<C>>::Call;
    default:
      if constexpr (lane_ops::kFloat<C>)
        return FloatFn<T>(op);
      else
        return IntFn<T>(op);
  }
}

template <typename T>
LaneFn TypedFn(Op op) {
  using C = Computed<T>;
  switch (op) {
    case Op::kCmpLt:
      return Lift<T, &lane_ops::CmpLt<C>>::Call;
    case Op::kCmpEq:
      return Lift<T, &lane_ops::CmpEq<C>>::Call;
    case Op::kCmpNe:
      return Lift<T, &lane_ops::CmpNe<C>>::Call;
    default:
      if constexpr (std::is_same_v<T, bool>)
        return LogicFn<T>(op);
      else
        return ArithFn<T>(op);
  }
}

LaneFn CastFn(DType from, DType to) {
  return VisitDType(from, [to](auto f) {
    return VisitDType(
        to, [](auto t) -> LaneFn { return Cast<decltype(f)::value, decltype(t)::value>; });
  });
}

template <typename Unsigned>
Lane ReadBytes(const uint8_t* at) {
  Unsigned value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

LaneFn FindLaneFn(Op op, DType in, DType out) {
  if (op == Op::kBitcast) return Same;
  if (op == Op::kWhere) return Where;
  if (op == Op::kCast) return CastFn(in, out);
  return Visit(in, [op](auto type) { return TypedFn<decltype(type)>(op); });
}

DType FoldType(DType dtype) { return IsNarrowFloat(dtype) ? DType::kFloat32 : dtype; }

LaneFn FoldFn(ReduceKind kind, DType dtype) {
  const Op op = kind == ReduceKind::kAdd   ? Op::kAdd
                : kind == ReduceKind::kMul ? Op::kMul
                                           : Op::kMax;
  return FindLaneFn(op, FoldType(dtype), FoldType(dtype));
}

Lane FoldStart(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kAdd) return 0;
  if (kind == ReduceKind::kMul) return CastFn(DType::kBool, FoldType(dtype))(1, 0, 0);
  return CastFn(dtype, FoldType(dtype))(LeastCode(Info(dtype)), 0, 0);
}

LaneFn ScatterFn(ScatterKind kind, DType dtype) {
  switch (kind) {
    case ScatterKind::kSet:
      return Second;
    case ScatterKind::kAdd:
      return FindLaneFn(Op::kAdd, dtype, dtype);
    case ScatterKind::kMul:
      return FindLaneFn(Op::kMul, dtype, dtype);
    case ScatterKind::kMax:
      return FindLaneFn(Op::kMax, dtype, dtype);
    case ScatterKind::kMin:
      return Visit(dtype, [](auto type) -> LaneFn {
        using T = decltype(type);
        return Lift<T, &lane_ops::Min<Computed<T>>>::Call;
      });
  }
  return nullptr;
}

Lane LaneOfConst(DType dtype, int64_t word) {
  const Lane bits = static_cast<Lane>(word);
  return CastFn(IsFloat(dtype) ? DType::kFloat64 : DType::kInt64, dtype)(bits, 0, 0);
}

int64_t LaneAsIndex(DType dtype, Lane lane) {
  if (dtype == DType::kUInt64 && lane > static_cast<Lane>(INT64_MAX)) return INT64_MAX;
  return static_cast<int64_t>(CastFn(dtype, DType::kInt64)(lane, 0, 0));
}

Lane LaneOfIndex(DType dtype, int64_t index) {
  return CastFn(DType::kInt64, dtype)(static_cast<Lane>(index), 0, 0);
}

Lane ReadLane(DType dtype, const uint8_t* at) {
  switch (LaneBytes(dtype)) {
    case 1:
      return IsBool(dtype) ? *at != 0 : *at;
    case 2:
      return ReadBytes<uint16_t>(at);
    case 4:
      return ReadBytes<uint32_t>(at);
    default:
      return ReadBytes<uint64_t>(at);
  }
}

void WriteLane(DType dtype, Lane lane, uint8_t* at) {
  switch (LaneBytes(dtype)) {
    case 1:
      *at = static_cast<uint8_t>(lane);
      return;
    case 2:
      std::memcpy(at, &lane, 2);
      return;
    case 4:
      std::memcpy(at, &lane, 4);
      return;
    default:
      std::memcpy(at, &lane, 8);
  }
}

void Unpack(DType dtype, const uint8_t* memory, int64_t n, uint8_t* lanes) {
  const int bits = Info(dtype).bits;
  if (IsBool(dtype)) {
    for (int64_t i = 0; i < n; ++i) lanes[i] = memory[i] != 0 ? 1 : 0;
  } else if (IsPacked(dtype)) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * bits;
      lanes[i] = static_cast<uint8_t>(memory[at / 8] >> (at % 8) & LowBits(dtype));
    }
  } else if (n > 0) {
    std::memcpy(lanes, memory, static_cast<size_t>(BytesOf(dtype, n)));
  }
}

void Pack(DType dtype, const uint8_t* lanes, int64_t n, uint8_t* memory) {
  if (n == 0) return;
  std::memset(memory, 0, static_cast<size_t>(BytesOf(dtype, n)));
  if (!IsPacked(dtype)) {
    std::memcpy(memory, lanes, static_cast<size_t>(BytesOf(dtype, n)));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i * Info(dtype).bits;
    memory[at / 8] = static_cast<uint8_t>(memory[at / 8] | lanes[i] << (at % 8));
  }
}

}  // namespace telegrad::reference
