// The ops of lane_ops.h, lifted from C++ values to lanes by a template, in tables by element type.
#include "engine/reference/lane.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/reference/lane_ops.h"

namespace telegrad::reference {
namespace {

static_assert(std::endian::native == std::endian::little, "lanes are little-endian memory");
static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

template <typename T>
T Get(Lane lane) {
  if constexpr (std::is_same_v<T, bool>) {
    return lane != 0;
  } else {
    T value;
    std::memcpy(&value, &lane, sizeof(T));
    return value;
  }
}

template <typename T>
Lane Put(T value) {
  Lane lane = 0;
  std::memcpy(&lane, &value, sizeof(T));
  return lane;
}

template <typename Unsigned>
Lane ReadBytes(const uint8_t* at) {
  Unsigned value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <auto F>
struct Lift;
template <typename R, typename X, R (*F)(X)>
struct Lift<F> {
  static Lane Call(Lane x, Lane, Lane) { return Put<R>(F(Get<X>(x))); }
};
template <typename R, typename X, typename Y, R (*F)(X, Y)>
struct Lift<F> {
  static Lane Call(Lane x, Lane y, Lane) { return Put<R>(F(Get<X>(x), Get<Y>(y))); }
};
template <typename R, typename X, typename Y, typename Z, R (*F)(X, Y, Z)>
struct Lift<F> {
  static Lane Call(Lane x, Lane y, Lane z) { return Put<R>(F(Get<X>(x), Get<Y>(y), Get<Z>(z))); }
};

Lane Same(Lane x, Lane, Lane) { return x; }
Lane Where(Lane x, Lane y, Lane z) { return x != 0 ? y : z; }

// --- tables ---

// Calls `f` with a value of the C++ type of `dtype`.
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
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    default:
      return nullptr;
  }
}

template <typename T>
LaneFn FloatFn(Op op) {
  switch (op) {
    case Op::kExp2:
      return Lift<&lane_ops::Exp2<T>>::Call;
    case Op::kLog2:
      return Lift<&lane_ops::Log2<T>>::Call;
    case Op::kSqrt:
      return Lift<&lane_ops::Sqrt<T>>::Call;
    case Op::kRecip:
      return Lift<&lane_ops::Recip<T>>::Call;
    case Op::kTrunc:
      return Lift<&lane_ops::Trunc<T>>::Call;
    case Op::kFloor:
      return Lift<&lane_ops::Floor<T>>::Call;
    case Op::kFDiv:
      return Lift<&lane_ops::FDiv<T>>::Call;
    default:
      return nullptr;
  }
}

template <typename T>
LaneFn LogicFn(Op op) {
  switch (op) {
    case Op::kAnd:
      return Lift<&lane_ops::And<T>>::Call;
    case Op::kOr:
      return Lift<&lane_ops::Or<T>>::Call;
    case Op::kXor:
      return Lift<&lane_ops::Xor<T>>::Call;
    default:
      return nullptr;
  }
}

template <typename T>
LaneFn IntFn(Op op) {
  switch (op) {
    case Op::kFloorDiv:
      return Lift<&lane_ops::FloorDiv<T>>::Call;
    case Op::kFloorMod:
      return Lift<&lane_ops::FloorMod<T>>::Call;
    case Op::kShl:
      return Lift<&lane_ops::Shl<T>>::Call;
    case Op::kShr:
      return Lift<&lane_ops::Shr<T>>::Call;
    default:
      return LogicFn<T>(op);
  }
}

template <typename T>
LaneFn ArithFn(Op op) {
  switch (op) {
    case Op::kNeg:
      return Lift<&lane_ops::Neg<T>>::Call;
    case Op::kAdd:
      return Lift<&lane_ops::Add<T>>::Call;
    case Op::kSub:
      return Lift<&lane_ops::Sub<T>>::Call;
    case Op::kMul:
      return Lift<&lane_ops::Mul<T>>::Call;
    case Op::kMax:
      return Lift<&lane_ops::Max<T>>::Call;
    case Op::kMulAcc:
      return Lift<&lane_ops::MulAcc<T>>::Call;
    default:
      if constexpr (lane_ops::kFloat<T>)
        return FloatFn<T>(op);
      else
        return IntFn<T>(op);
  }
}

template <typename T>
LaneFn TypedFn(Op op) {
  switch (op) {
    case Op::kCmpLt:
      return Lift<&lane_ops::CmpLt<T>>::Call;
    case Op::kCmpEq:
      return Lift<&lane_ops::CmpEq<T>>::Call;
    case Op::kCmpNe:
      return Lift<&lane_ops::CmpNe<T>>::Call;
    default:
      if constexpr (std::is_same_v<T, bool>)
        return LogicFn<T>(op);
      else
        return ArithFn<T>(op);
  }
}

LaneFn CastFn(DType in, DType out) {
  return Visit(in, [out](auto from) {
    using From = decltype(from);
    return Visit(out,
                 [](auto to) -> LaneFn { return Lift<&lane_ops::Cast<decltype(to), From>>::Call; });
  });
}

}  // namespace

LaneFn FindLaneFn(Op op, DType in, DType out) {
  if (op == Op::kBitcast) return Same;
  if (op == Op::kWhere) return Where;
  if (op == Op::kCast) return CastFn(in, out);
  return Visit(in, [op](auto type) { return TypedFn<decltype(type)>(op); });
}

LaneFn FoldFn(ReduceKind kind, DType dtype) {
  const Op op = kind == ReduceKind::kAdd   ? Op::kAdd
                : kind == ReduceKind::kMul ? Op::kMul
                                           : Op::kMax;
  return FindLaneFn(op, dtype, dtype);
}

Lane FoldStart(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kAdd) return 0;
  if (kind == ReduceKind::kMul) return CastFn(DType::kBool, dtype)(1, 0, 0);
  // Minus infinity saturates to the least value of an integer type.
  const Lane least = Put<double>(-std::numeric_limits<double>::infinity());
  return CastFn(DType::kFloat64, dtype)(least, 0, 0);
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
  switch (ByteSize(dtype)) {
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
  switch (ByteSize(dtype)) {
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

}  // namespace telegrad::reference
