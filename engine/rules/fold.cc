// Integers are computed as uint64 and wrapped to their type; only comparison, division and right
// shift look at the sign. Floats are computed in their own type, or in float, so that each
// operation rounds once there.
#include "engine/rules/fold.h"

#include <array>
#include <bit>
#include <cmath>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

template <typename T>
std::optional<T> FoldFloat(Op op, T x, T y, T z) {
  switch (op) {
    case Op::kNeg:
      return -x;
    case Op::kExp2:
      return static_cast<T>(std::exp2(static_cast<double>(x)));
    case Op::kLog2:
      return static_cast<T>(std::log2(static_cast<double>(x)));
    case Op::kSin:
      return static_cast<T>(std::sin(static_cast<double>(x)));
    case Op::kPow:
      return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kRecip:
      return T{1} / x;
    case Op::kTrunc:
      return std::trunc(x);
    case Op::kFloor:
      return std::floor(x);
    case Op::kAdd:
      return x + y;
    case Op::kSub:
      return x - y;
    case Op::kMul:
      return x * y;
    case Op::kFDiv:
      return x / y;
    case Op::kMax:
      if (std::isnan(x) || std::isnan(y)) return x + y;
      if (x == y) return std::signbit(x) ? y : x;  // +0 over -0
      return x < y ? y : x;
    case Op::kMulAcc:
      return std::fma(x, y, z);
    default:
      return std::nullopt;
  }
}

struct Division {
  int64_t quotient, remainder;
};

Division FloorDivide(bool is_unsigned, int64_t x, int64_t y) {
  if (y == 0) return {0, 0};
  if (is_unsigned) {
    const auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
    return {static_cast<int64_t>(a / b), static_cast<int64_t>(a % b)};
  }
  if (y == -1) return {static_cast<int64_t>(-static_cast<uint64_t>(x)), 0};
  const int64_t q = x / y, r = x % y;
  if (r != 0 && (r < 0) != (y < 0)) return {q - 1, r + y};
  return {q, r};
}

// Toward zero.
Division Divide(bool is_unsigned, int64_t x, int64_t y) {
  const Division floor = FloorDivide(is_unsigned, x, y);
  if (floor.remainder == 0 || is_unsigned || (x < 0) == (y < 0)) return floor;
  return {floor.quotient + 1, floor.remainder - y};
}

// Random123's Threefry-2x32 with 20 rounds: the words of the counter and of the key, low first.
uint64_t Threefry(uint64_t counter, uint64_t key) {
  uint32_t x[2] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32)};
  const uint32_t k[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  const uint32_t keys[3] = {k[0], k[1], 0x1bd11bda ^ k[0] ^ k[1]};
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x[0] += keys[0];
  x[1] += keys[1];
  for (uint32_t block = 0; block < 5; ++block) {
    for (int rotation : kRotations[block % 2]) {
      x[0] += x[1];
      x[1] = std::rotl(x[1], rotation) ^ x[0];
    }
    x[0] += keys[(block + 1) % 3];
    x[1] += keys[(block + 2) % 3] + block + 1;
  }
  return uint64_t{x[1]} << 32 | x[0];
}

// The sum of the products of the bytes, those of x unsigned and those of y signed.
int64_t DotOfBytes(int64_t x, int64_t y) {
  int64_t sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<uint8_t>(x >> shift) * static_cast<int8_t>(y >> shift);
  }
  return sum;
}

std::optional<int64_t> FoldInt(Op op, DType dtype, int64_t x, int64_t y, int64_t z) {
  const auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
  const bool is_unsigned = IsUnsigned(dtype);
  const bool oversized = b >= static_cast<uint64_t>(Info(dtype).bits);  // a negative y, too
  switch (op) {
    case Op::kNeg:
      return static_cast<int64_t>(-a);
    case Op::kAdd:
      return static_cast<int64_t>(a + b);
    case Op::kSub:
      return static_cast<int64_t>(a - b);
    case Op::kMul:
      return static_cast<int64_t>(a * b);
    case Op::kMulAcc:
      return static_cast<int64_t>(a * b + static_cast<uint64_t>(z));
    case Op::kDot4:
      return z + DotOfBytes(x, y);
    case Op::kFloorDiv:
      return FloorDivide(is_unsigned, x, y).quotient;
    case Op::kFloorMod:
      return FloorDivide(is_unsigned, x, y).remainder;
    case Op::kCDiv:
      return Divide(is_unsigned, x, y).quotient;
    case Op::kCMod:
      return Divide(is_unsigned, x, y).remainder;
    case Op::kThreefry:
      return static_cast<int64_t>(Threefry(a, b));
    case Op::kMax:
      return (is_unsigned ? a < b : x < y) ? y : x;
    case Op::kAnd:
      return x & y;
    case Op::kOr:
      return x | y;
    case Op::kXor:
      return x ^ y;
    case Op::kShl:
      return oversized ? 0 : static_cast<int64_t>(a << b);
    case Op::kShr:
      if (is_unsigned) return oversized ? 0 : static_cast<int64_t>(a >> b);
      return x >> (oversized ? 63 : y);
    default:
      return std::nullopt;
  }
}

template <typename T>
bool Compare(Op op, T x, T y) {
  return op == Op::kCmpLt ? x < y : op == Op::kCmpEq ? x == y : x != y;
}

int64_t FoldCompare(Op op, DType type, int64_t x, int64_t y) {
  if (IsFloat(type)) return Compare(op, std::bit_cast<double>(x), std::bit_cast<double>(y));
  if (IsUnsigned(type)) return Compare(op, static_cast<uint64_t>(x), static_cast<uint64_t>(y));
  return Compare(op, x, y);
}

int64_t FoldCast(DType to, DType from, int64_t word) {
  if (IsFloat(from)) return ScalarFromDouble(to, std::bit_cast<double>(word));
  if (from == DType::kUInt64) return ScalarFromUnsigned(to, static_cast<uint64_t>(word));
  return ScalarFromInt(to, word);
}

}  // namespace

std::optional<int64_t> Fold(Op op, DType dtype, std::span<const DType> types,
                            std::span<const int64_t> words) {
  if (!Is(op, kAlu)) return std::nullopt;
  const auto word = [&](size_t i) { return i < words.size() ? words[i] : 0; };
  switch (op) {
    case Op::kCast:
      return FoldCast(dtype, types[0], words[0]);
    case Op::kBitcast: {
      const int64_t raw = ScalarToMemory(types[0], words[0]);
      const int64_t value = ScalarFromMemory(dtype, raw);
      // A CONST represents one NaN; the bits of another would be lost.
      const auto lost = static_cast<uint64_t>(raw ^ ScalarToMemory(dtype, value));
      if (IsFloat(dtype) && lost << (64 - Info(dtype).bits) != 0) return std::nullopt;
      return value;
    }
    case Op::kWhere:
      return words[0] != 0 ? words[1] : words[2];
    case Op::kCmpLt:
    case Op::kCmpEq:
    case Op::kCmpNe:
      return FoldCompare(op, types[0], words[0], words[1]);
    default:
      break;
  }
  if (dtype == DType::kFloat32 || IsNarrowFloat(dtype)) {
    const auto f = [&](size_t i) { return static_cast<float>(std::bit_cast<double>(word(i))); };
    const std::optional<float> value = FoldFloat<float>(op, f(0), f(1), f(2));
    if (!value) return std::nullopt;
    return ScalarFromDouble(dtype, static_cast<double>(*value));
  }
  if (dtype == DType::kFloat64) {
    const auto d = [&](size_t i) { return std::bit_cast<double>(word(i)); };
    const std::optional<double> value = FoldFloat<double>(op, d(0), d(1), d(2));
    if (!value) return std::nullopt;
    return std::bit_cast<int64_t>(*value);
  }
  const std::optional<int64_t> value = FoldInt(op, dtype, word(0), word(1), word(2));
  if (!value) return std::nullopt;
  return ScalarFromInt(dtype, *value);
}

std::optional<int64_t> Fold(UOp u) {
  std::array<DType, 3> types;
  std::array<int64_t, 3> words;
  const int n = u.num_src();
  if (n == 0 || n > 3) return std::nullopt;
  for (int i = 0; i < n; ++i) {
    const UOp s = u.src(i);
    if (!s.is_const()) return std::nullopt;
    types[i] = s.dtype();
    words[i] = s.const_word();
  }
  return Fold(u.op(), u.dtype(), {types.data(), static_cast<size_t>(n)},
              {words.data(), static_cast<size_t>(n)});
}

}  // namespace telegrad
