// The tests' own evaluator: what ops.def says, written apart from rules/fold and in another way
// (integers through __int128 arithmetic and explicit wrapping). Leaves take their values from an
// environment.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/scalar.h"

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

// The finite values of a narrow float type from 0 up, by code, and the value that one more code
// would have.
inline std::vector<double> NarrowValues(DType dtype) {
  std::vector<double> out;
  for (int64_t code = 0; code < int64_t{1} << (Info(dtype).bits - 1); ++code) {
    const double value = std::bit_cast<double>(ScalarFromMemory(dtype, code));
    if (std::isfinite(value)) out.push_back(value);
  }
  out.push_back(2 * out.back() - out[out.size() - 2]);
  return out;
}

// By search: the nearest of all values, of two the one with the even code.
inline Value RoundNarrow(DType dtype, long double v) {
  static auto* tables = new std::map<DType, std::vector<double>>();
  std::vector<double>& values = (*tables)[dtype];
  if (values.empty()) values = NarrowValues(dtype);
  if (std::isnan(v)) return {dtype, 0, std::nan("")};
  const int64_t last = static_cast<int64_t>(values.size()) - 1;
  const long double size = std::fmin(std::fabs(v), static_cast<long double>(values[last]));
  int64_t code = std::lower_bound(values.begin(), values.end(), size) - values.begin();
  if (code > 0) {
    const long double below = size - values[code - 1], above = values[code] - size;
    if (below < above || (below == above && code % 2 != 0)) --code;
  }
  const FloatSpecials specials = Info(dtype).specials;
  double value = values[code];
  if (code == last) {
    value =
        specials == FloatSpecials::kIeee ? std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (code == 0 && specials == FloatSpecials::kNegZeroNan) return {dtype, 0, 0};
  return {dtype, 0, std::copysign(value, std::signbit(v) ? -1.0 : 1.0)};
}

// Narrow types are computed in f32.
inline Value RoundFloat(DType dtype, double v) {
  if (dtype == DType::kFloat64) return {dtype, 0, v};
  const auto single = static_cast<double>(static_cast<float>(v));
  if (IsNarrowFloat(dtype)) return RoundNarrow(dtype, single);
  return {dtype, 0, single};
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
  const bool single = t != DType::kFloat64;
  switch (op) {
    case Op::kNeg:
      return RoundFloat(t, std::copysign(x, std::signbit(x) ? 1.0 : -1.0));
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
      return RoundFloat(t, single ? std::sin(x) : static_cast<double>(sinl(x)));
    case Op::kPow:
      return RoundFloat(t, single ? std::pow(x, y) : static_cast<double>(powl(x, y)));
    case Op::kMax:
      if (std::isnan(x) || std::isnan(y)) return {t, 0, std::nan("")};
      if (x == 0 && y == 0) return {t, 0, std::signbit(x) && std::signbit(y) ? -0.0 : 0.0};
      return {t, 0, std::fmax(x, y)};
    case Op::kMulAcc:
      if (single) {
        return RoundFloat(
            t, std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)));
      }
      return {t, 0, std::fma(x, y, z)};
    default:
      ADD_FAILURE() << "no float semantics for " << Name(op);
      return {t};
  }
}

inline Int FloorQuotient(Int x, Int y) {
  if (y == 0) return 0;
  Int q = x / y;
  if (q * y != x && (x < 0) != (y < 0)) --q;
  return q;
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
    case Op::kFloorDiv:
      return WrapInt(t, FloorQuotient(x, y));
    case Op::kFloorMod:
      return WrapInt(t, y == 0 ? 0 : x - FloorQuotient(x, y) * y);
    case Op::kCDiv:
      return WrapInt(t, y == 0 ? 0 : x / y);
    case Op::kCMod:
      return WrapInt(t, y == 0 ? 0 : x % y);
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
      ADD_FAILURE() << "no integer semantics for " << Name(op);
      return {t};
  }
}

inline Value EvalCast(DType to, const Value& v) {
  if (IsFloat(v.dtype)) {
    if (IsNarrowFloat(to)) return RoundNarrow(to, v.f);
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
  if (IsNarrowFloat(to)) return RoundNarrow(to, exact);
  return {to, 0,
          to == DType::kFloat32 ? static_cast<double>(static_cast<float>(exact))
                                : static_cast<double>(exact)};
}

inline uint64_t Bits(const Value& v) {
  if (IsNarrowFloat(v.dtype)) {
    const int64_t raw = ScalarToMemory(v.dtype, std::bit_cast<int64_t>(v.f));
    return static_cast<uint64_t>(raw) & ((1ull << Info(v.dtype).bits) - 1);
  }
  if (v.dtype == DType::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(v.f));
  if (v.dtype == DType::kFloat64) return std::bit_cast<uint64_t>(v.f);
  const int bits = Info(v.dtype).bits;
  return static_cast<uint64_t>(v.i) & (bits == 64 ? ~0ull : (1ull << bits) - 1);
}

inline Value EvalBitcast(DType to, const Value& v) {
  const uint64_t bits = Bits(v);
  if (to == DType::kFloat32) return {to, 0, std::bit_cast<float>(static_cast<uint32_t>(bits))};
  if (to == DType::kFloat64) return {to, 0, std::bit_cast<double>(bits)};
  if (IsNarrowFloat(to)) return FromWord(to, ScalarFromMemory(to, static_cast<int64_t>(bits)));
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
