// The tests' own evaluator: what ops.def says, written apart from rules/fold and in another way
// (integers through __int128 arithmetic and explicit wrapping). Leaves take their values from an
// environment.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/scalar.h"
#include "engine/rules/test_narrow_float.h"

namespace telegrad::test {

__extension__ using Int = __int128;

struct Value {
  DType dtype;
  Int i = 0;     // integers and bool
  double f = 0;  // floats
};

inline Value WrapInt(DType dtype, Int v) {
  if (IsBool(dtype)) return {dtype, v != 0 ? 1 : 0, 0};
  const int bits = Info(dtype).bits;
  const Int size = Int{1} << bits;
  v %= size;
  if (v < 0) v += size;
  if (IsSigned(dtype) && v >= size / 2) v -= size;
  return {dtype, v, 0};
}

inline Value RoundFloat(DType dtype, double v) {
  if (IsNarrowFloat(dtype)) return {dtype, 0, RoundNarrow(dtype, v)};
  return {dtype, 0, dtype == DType::kFloat32 ? static_cast<double>(static_cast<float>(v)) : v};
}

inline Value FromWord(DType dtype, int64_t word) {
  if (IsFloat(dtype)) return {dtype, 0, std::bit_cast<double>(word)};
  if (dtype == DType::kUInt64) return {dtype, Int{static_cast<uint64_t>(word)}, 0};
  return {dtype, Int{word}, 0};
}

// Bit for bit; all NaN are one.
inline bool Same(const Value& a, const Value& b) {
  if (a.dtype != b.dtype) return false;
  if (!IsFloat(a.dtype)) return a.i == b.i;
  if (std::isnan(a.f) || std::isnan(b.f)) return std::isnan(a.f) && std::isnan(b.f);
  return std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f);
}

inline Value EvalFloat(Op op, DType t, double x, double y, double z) {
  if (IsNarrowFloat(t)) return RoundFloat(t, EvalFloat(op, DType::kFloat32, x, y, z).f);
  const bool single = t == DType::kFloat32;
  switch (op) {
    case Op::kNeg:
      return {t, 0, std::copysign(x, std::signbit(x) ? 1.0 : -1.0)};
    case Op::kAdd:
      return RoundFloat(t, x + y);  // double rounding is innocuous: 53 >= 2*24 + 2
    case Op::kSub:
      return RoundFloat(t, x - y);
    case Op::kMul:
      return RoundFloat(t, x * y);
    case Op::kFDiv:
      return RoundFloat(t, x / y);
    case Op::kRecip:
      return RoundFloat(t, 1 / x);
    case Op::kSqrt:
      return RoundFloat(t, std::sqrt(x));
    case Op::kTrunc:
      return {t, 0, std::isfinite(x) ? std::copysign(std::floor(std::fabs(x)), x) : x};
    case Op::kFloor:
      return {t, 0, std::isfinite(x) ? std::floor(x) : x};
    case Op::kExp2:
      return RoundFloat(t, single ? std::exp2(x) : static_cast<double>(exp2l(x)));
    case Op::kLog2:
      return RoundFloat(t, single ? std::log2(x) : static_cast<double>(log2l(x)));
    case Op::kSin:
      return RoundFloat(t, static_cast<double>(sinl(x)));
    case Op::kPow:
      return RoundFloat(t, static_cast<double>(powl(x, y)));
    case Op::kMax:
      if (std::isnan(x) || std::isnan(y)) return {t, 0, std::nan("")};
      if (x == 0 && y == 0) return {t, 0, std::signbit(x) && std::signbit(y) ? -0.0 : 0.0};
      return {t, 0, std::fmax(x, y)};
    case Op::kMulAcc:
      if (single) {
        return {t, 0,
                static_cast<double>(
                    std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)))};
      }
      return {t, 0, std::fma(x, y, z)};
    default:
      ADD_FAILURE() << "EvalFloat of test_evaluator.h has no case for " << Name(op);
      return {t};
  }
}

inline Int FloorQuotient(Int x, Int y) {
  if (y == 0) return 0;
  Int q = x / y;
  if (q * y != x && (x < 0) != (y < 0)) --q;
  return q;
}

// The 20 rounds of Threefry-2x32, on words kept in 64 bits.
inline Int Threefry(uint64_t counter, uint64_t key) {
  constexpr uint64_t kWord = 0xffffffff;
  constexpr int kRotations[] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint64_t keys[] = {key & kWord, key >> 32, (key ^ key >> 32 ^ 0x1bd11bda) & kWord};
  uint64_t x = (counter + keys[0]) & kWord, y = ((counter >> 32) + keys[1]) & kWord;
  for (int i = 0; i < 20; ++i) {
    x = (x + y) & kWord;
    y = ((y << kRotations[i % 8] | y >> (32 - kRotations[i % 8])) & kWord) ^ x;
    if (i % 4 != 3) continue;
    const int part = i / 4 + 1;
    x = (x + keys[part % 3]) & kWord;
    y = (y + keys[(part + 1) % 3] + part) & kWord;
  }
  return Int{y << 32 | x};
}

inline Value EvalInt(Op op, DType t, Int x, Int y, Int z) {
  const int bits = Info(t).bits;
  switch (op) {
    case Op::kNeg:
      return WrapInt(t, -x);
    case Op::kAdd:
      return WrapInt(t, x + y);
    case Op::kSub:
      return WrapInt(t, x - y);
    case Op::kMul:
    case Op::kMulAcc: {
      // Products of two u64 pass 2^127: reduce one factor first.
      const Int product =
          static_cast<Int>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y));
      const Int low = product & ((Int{1} << 64) - 1);
      return WrapInt(t, low + (op == Op::kMulAcc ? z : 0));
    }
    case Op::kDot4: {
      const auto byte = [](Int word, int i, int low) {  // within [low, low + 256)
        const int value = static_cast<int>(word >> 8 * i & 255);
        return value >= low + 256 ? value - 256 : value;
      };
      for (int i = 0; i < 4; ++i) z += byte(x, i, 0) * byte(y, i, -128);
      return WrapInt(t, z);
    }
    case Op::kFloorDiv:
      return WrapInt(t, FloorQuotient(x, y));
    case Op::kFloorMod:
      return WrapInt(t, y == 0 ? 0 : x - FloorQuotient(x, y) * y);
    case Op::kCDiv:
      return WrapInt(t, y == 0 ? 0 : x / y);
    case Op::kCMod:
      return WrapInt(t, y == 0 ? 0 : x % y);
    case Op::kThreefry:
      return {t, Threefry(static_cast<uint64_t>(x), static_cast<uint64_t>(y))};
    case Op::kMax:
      return {t, x > y ? x : y};
    case Op::kAnd:
      return WrapInt(t, x & y);
    case Op::kOr:
      return WrapInt(t, x | y);
    case Op::kXor:
      return WrapInt(t, x ^ y);
    case Op::kShl:
      return WrapInt(t, y < 0 || y >= bits ? 0 : x * (Int{1} << static_cast<int>(y)));
    case Op::kShr:
      if (y < 0 || y >= bits) return WrapInt(t, x < 0 ? -1 : 0);
      return WrapInt(t, FloorQuotient(x, Int{1} << static_cast<int>(y)));
    default:
      ADD_FAILURE() << "EvalInt of test_evaluator.h has no case for " << Name(op);
      return {t};
  }
}

inline Value EvalCast(DType to, const Value& v) {
  if (IsFloat(v.dtype)) {
    if (IsFloat(to)) return RoundFloat(to, v.f);
    if (IsBool(to)) return {to, v.f != 0 ? 1 : 0, 0};
    if (std::isnan(v.f)) return {to, 0, 0};
    const int bits = Info(to).bits;
    const Int lo = IsSigned(to) ? -(Int{1} << (bits - 1)) : 0;
    const Int hi = IsSigned(to) ? (Int{1} << (bits - 1)) - 1 : (Int{1} << bits) - 1;
    if (v.f <= -1e30) return {to, lo, 0};
    if (v.f >= 1e30) return {to, hi, 0};
    const Int whole = static_cast<Int>(v.f);
    return {to, whole < lo ? lo : whole > hi ? hi : whole, 0};
  }
  if (!IsFloat(to)) return WrapInt(to, v.i);
  // long double holds every 64-bit integer on this platform.
  const auto exact = static_cast<long double>(v.i);
  if (IsNarrowFloat(to)) {
    // Every bit below the 40 highest only matters for not being 0.
    const double top = std::trunc(static_cast<double>(std::ldexp(exact, -24)));
    const double rest = static_cast<double>(exact - std::ldexp(static_cast<long double>(top), 24));
    const double sticky = rest == 0 ? 0 : std::copysign(1, rest);
    return RoundFloat(to, std::fabs(exact) < 0x1p52L ? static_cast<double>(exact)
                                                     : std::ldexp(top, 24) + sticky * 0x1p12);
  }
  return {to, 0,
          to == DType::kFloat32 ? static_cast<double>(static_cast<float>(exact))
                                : static_cast<double>(exact)};
}

inline uint64_t Bits(const Value& v) {
  if (IsNarrowFloat(v.dtype)) return EncodeFloat(v.dtype, v.f);
  if (v.dtype == DType::kFloat32) {
    const auto remembered = static_cast<uint32_t>(std::bit_cast<uint64_t>(v.f));
    if (std::isnan(v.f) && std::isnan(std::bit_cast<float>(remembered))) return remembered;
    return std::bit_cast<uint32_t>(static_cast<float>(v.f));
  }
  if (v.dtype == DType::kFloat64) return std::bit_cast<uint64_t>(v.f);
  const int bits = Info(v.dtype).bits;
  return static_cast<uint64_t>(v.i) & (bits == 64 ? ~0ull : (1ull << bits) - 1);
}

inline Value EvalBitcast(DType to, const Value& v) {
  const uint64_t bits = Bits(v);
  if (IsNarrowFloat(to)) return {to, 0, DecodeFloat(to, bits)};
  if (to == DType::kFloat32) {
    // A conversion would make a signaling NaN quiet; a NaN remembers its bits instead.
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    return {
        to, 0,
        std::isnan(value) ? std::bit_cast<double>(std::bit_cast<uint64_t>(kNaN) | bits) : value};
  }
  if (to == DType::kFloat64) return {to, 0, std::bit_cast<double>(bits)};
  return WrapInt(to, Int{bits});
}

// One ALU op.
inline Value EvalOp(Op op, DType dtype, const std::vector<Value>& v) {
  const auto at = [&](size_t i) { return i < v.size() ? v[i] : Value{dtype}; };
  switch (op) {
    case Op::kCast:
      return EvalCast(dtype, v[0]);
    case Op::kBitcast:
      return EvalBitcast(dtype, v[0]);
    case Op::kWhere:
      return v[0].i != 0 ? v[1] : v[2];
    case Op::kCmpLt:
    case Op::kCmpEq:
    case Op::kCmpNe: {
      const bool f = IsFloat(v[0].dtype);
      const bool less = f ? v[0].f < v[1].f : v[0].i < v[1].i;
      const bool equal = f ? v[0].f == v[1].f : v[0].i == v[1].i;
      return {dtype, op == Op::kCmpLt ? less : op == Op::kCmpEq ? equal : !equal, 0};
    }
    default:
      if (IsFloat(dtype)) return EvalFloat(op, dtype, at(0).f, at(1).f, at(2).f);
      return EvalInt(op, dtype, at(0).i, at(1).i, at(2).i);
  }
}

using Environment = std::map<uint32_t, Value>;  // by node id of the leaves

// The value of a scalar expression.
inline Value Evaluate(UOp root, const Environment& leaves) {
  std::map<uint32_t, Value> values = leaves;
  const Graph& graph = *root.graph();
  for (uint32_t id : PostOrder(root)) {
    if (values.count(id) != 0) continue;
    const UOp u = graph.at(id);
    if (u.is_const()) {
      values[id] = FromWord(u.dtype(), u.const_word());
    } else if (Is(u.op(), kAlu)) {
      std::vector<Value> src;
      for (uint32_t s : u.src_ids()) src.push_back(values.at(s));
      values[id] = EvalOp(u.op(), u.dtype(), src);
    }
  }
  return values.at(root.id());
}

}  // namespace telegrad::test
