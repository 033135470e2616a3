// The judge is judged by definitions: 8-bit integers exhaustively against arithmetic in doubles
// (which hold every value that occurs), floats on edges.
#include "engine/reference/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <span>

#include "engine/base/strings.h"
#include "engine/ir/scalar.h"

namespace telegrad::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

Lane F32(float x) { return std::bit_cast<uint32_t>(x); }
float AsF32(Lane lane) { return std::bit_cast<float>(static_cast<uint32_t>(lane)); }

float Unary(Op op, float x) {
  return AsF32(FindLaneFn(op, DType::kFloat32, DType::kFloat32)(F32(x), 0, 0));
}
float Binary(Op op, float x, float y) {
  return AsF32(FindLaneFn(op, DType::kFloat32, DType::kFloat32)(F32(x), F32(y), 0));
}

TEST(Lane, EveryAluOpHasAMeaningOnItsTypes) {
  for (const OpInfo& op : AllOps()) {
    if (!Is(op.op, kAlu)) continue;
    for (const DTypeInfo& type : AllDTypes().subspan(1)) {
      const DType t = type.dtype;
      bool allowed = op.elements == Elements::kAny || !IsStorage(t);
      if (op.elements == Elements::kArith) allowed &= IsInt(t) || IsFloat(t);
      if (op.elements == Elements::kFloatOnly) allowed &= IsFloat(t);
      if (op.elements == Elements::kIntOnly) allowed &= IsInt(t);
      if (op.elements == Elements::kLogic) allowed &= IsInt(t) || IsBool(t);
      if (op.elements == Elements::kBoolOnly) allowed &= IsBool(t);
      if (op.elements == Elements::kU64Only) allowed &= t == DType::kUInt64;
      if (op.elements == Elements::kI32Only) allowed &= t == DType::kInt32;
      if (!allowed) continue;
      EXPECT_NE(FindLaneFn(op.op, t, t), nullptr)
          << std::string(op.name) << " on " << std::string(type.text);
    }
  }
}

// The 8 bits of a whole number, however large.
int Wrap8(double value, bool is_signed) {
  const int byte = static_cast<int>(value - 256 * std::floor(value / 256));
  return is_signed && byte > 127 ? byte - 256 : byte;
}

void CheckBytePairs(DType dtype) {
  const bool is_signed = dtype == DType::kInt8;
  const auto value = [&](int byte) { return is_signed && byte > 127 ? byte - 256 : byte; };
  const auto check = [&](Op op, int i, int j, double expected) {
    const Lane got = FindLaneFn(op, dtype, dtype)(i, j, 0);
    ASSERT_EQ(value(static_cast<int>(got)), Wrap8(expected, is_signed))
        << std::string(Name(op)) << " " << value(i) << ", " << value(j);
  };
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 256; ++j) {
      const double x = value(i), y = value(j);
      check(Op::kNeg, i, j, -x);
      check(Op::kAdd, i, j, x + y);
      check(Op::kSub, i, j, x - y);
      check(Op::kMul, i, j, x * y);
      check(Op::kMax, i, j, std::max(x, y));
      check(Op::kFloorDiv, i, j, y == 0 ? 0 : std::floor(x / y));
      check(Op::kFloorMod, i, j, y == 0 ? 0 : x - std::floor(x / y) * y);
      check(Op::kCDiv, i, j, y == 0 ? 0 : std::trunc(x / y));
      check(Op::kCMod, i, j, y == 0 ? 0 : std::fmod(x, y));
      check(Op::kAnd, i, j, i & j);
      check(Op::kOr, i, j, i | j);
      check(Op::kXor, i, j, i ^ j);
      const bool oversized = y < 0 || y >= 8;
      check(Op::kShl, i, j, oversized ? 0 : std::ldexp(x, static_cast<int>(y)));
      check(Op::kShr, i, j,
            oversized ? (x < 0 ? -1 : 0) : std::floor(std::ldexp(x, -static_cast<int>(y))));
      ASSERT_EQ(FindLaneFn(Op::kCmpLt, dtype, DType::kBool)(i, j, 0), Lane{x < y});
      ASSERT_EQ(FindLaneFn(Op::kCmpEq, dtype, DType::kBool)(i, j, 0), Lane{x == y});
      ASSERT_EQ(FindLaneFn(Op::kCmpNe, dtype, DType::kBool)(i, j, 0), Lane{x != y});
    }
  }
}

TEST(Lane, SignedBytes) { CheckBytePairs(DType::kInt8); }
TEST(Lane, UnsignedBytes) { CheckBytePairs(DType::kUInt8); }

TEST(Lane, WideIntegersWrapAndNeverTrap) {
  const auto i64 = [](Op op, int64_t x, int64_t y) {
    return static_cast<int64_t>(FindLaneFn(op, DType::kInt64, DType::kInt64)(
        static_cast<Lane>(x), static_cast<Lane>(y), 0));
  };
  EXPECT_EQ(i64(Op::kAdd, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(i64(Op::kFloorDiv, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(i64(Op::kFloorMod, INT64_MIN, -1), 0);
  EXPECT_EQ(i64(Op::kFloorDiv, INT64_MIN, 0), 0);
  EXPECT_EQ(i64(Op::kFloorDiv, -7, 2), -4);
  EXPECT_EQ(i64(Op::kFloorMod, -7, 2), 1);
  EXPECT_EQ(i64(Op::kFloorMod, 7, -2), -1);
  EXPECT_EQ(i64(Op::kCDiv, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(i64(Op::kCMod, INT64_MIN, -1), 0);
  EXPECT_EQ(i64(Op::kCDiv, INT64_MIN, 0), 0);
  EXPECT_EQ(i64(Op::kCDiv, -7, 2), -3);
  EXPECT_EQ(i64(Op::kCMod, -7, 2), -1);
  EXPECT_EQ(i64(Op::kCMod, 7, -2), 1);
  EXPECT_EQ(i64(Op::kShl, 1, 63), INT64_MIN);
  EXPECT_EQ(i64(Op::kShl, 1, 64), 0);
  EXPECT_EQ(i64(Op::kShr, INT64_MIN, 200), -1);
  EXPECT_EQ(i64(Op::kMul, INT64_MIN, -1), INT64_MIN);
}

// The bytes of x are unsigned, those of y signed; 4 * 255 * 128 is far within an i32, sums wrap.
TEST(Lane, WordsOfBytesAreMultipliedAndAddedUp) {
  const auto dot = [](uint32_t x, uint32_t y, int32_t z) {
    return static_cast<int32_t>(
        FindLaneFn(Op::kDot4, DType::kInt32, DType::kInt32)(x, y, static_cast<uint32_t>(z)));
  };
  EXPECT_EQ(dot(0x04030201, 0x01010101, 0), 10);
  EXPECT_EQ(dot(0xff000000, 0x80000000, 0), 255 * -128);
  EXPECT_EQ(dot(0x000000ff, 0x0000007f, 5), 255 * 127 + 5);
  EXPECT_EQ(dot(0xffffffff, 0x80808080, 0), 4 * 255 * -128);
  EXPECT_EQ(dot(0x80, 0xff, 0), -128);
  EXPECT_EQ(dot(0xff, 0x80, INT32_MIN), INT32_MAX - 255 * 128 + 1);
}

TEST(Lane, FloatsRoundInFloatPrecision) {
  // In double the sum would not lose the 1.
  EXPECT_EQ(Binary(Op::kAdd, 16777216.0f, 1.0f), 16777216.0f);
  EXPECT_EQ(Unary(Op::kRecip, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(Binary(Op::kFDiv, 1, 0), kInf);
  EXPECT_TRUE(std::isnan(Binary(Op::kFDiv, 0, 0)));
  EXPECT_EQ(Unary(Op::kSqrt, 2.0f), 1.41421356f);
  EXPECT_TRUE(std::isnan(Unary(Op::kSqrt, -1)));
  EXPECT_EQ(Unary(Op::kTrunc, -1.5f), -1);
  EXPECT_EQ(Unary(Op::kFloor, -1.5f), -2);
  EXPECT_EQ(Unary(Op::kExp2, 10), 1024);
  EXPECT_EQ(Unary(Op::kExp2, -kInf), 0);
  EXPECT_EQ(Unary(Op::kLog2, 1024), 10);
  EXPECT_EQ(Unary(Op::kLog2, 0), -kInf);
  EXPECT_TRUE(std::isnan(Unary(Op::kLog2, -1)));
  EXPECT_TRUE(std::signbit(Unary(Op::kNeg, 0)));
}

// The known answers for threefry2x32 with 20 rounds that come with Random123 (kat_vectors).
TEST(Lane, ThreefryGivesTheKnownAnswers) {
  const LaneFn threefry = FindLaneFn(Op::kThreefry, DType::kUInt64, DType::kUInt64);
  const auto words = [](uint32_t first, uint32_t second) { return Lane{second} << 32 | first; };
  EXPECT_EQ(threefry(words(0, 0), words(0, 0), 0), words(0x6b200159, 0x99ba4efe));
  EXPECT_EQ(threefry(words(0xffffffff, 0xffffffff), words(0xffffffff, 0xffffffff), 0),
            words(0x1cb996fc, 0xbb002be7));
  EXPECT_EQ(threefry(words(0x243f6a88, 0x85a308d3), words(0x13198a2e, 0x03707344), 0),
            words(0xc4923a9c, 0x483df7a0));
  // What tinygrad 0.14.0 computes on its CPU device.
  EXPECT_EQ(threefry(1, 0, 0), 0xc0de3f32508efb2cu);
  EXPECT_EQ(threefry(0x4164d8399f767c45, 0x87b0b125ec1d7da0, 0), 0xdbc8566fe326f97bu);
  EXPECT_EQ(threefry(0x5bc8fbbcbde5c099, 0xd7210dff076ce2ef, 0), 0x3f5fcf9ae15291fau);
}

// A float function of `ulps` precision, checked in long double on values of all sizes.
void CheckUlps(Op op, double ulps, double largest,
               const std::function<long double(long double, long double)>& exact) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(-12, std::log2(largest)), sign(-1, 1);
  const LaneFn f32 = FindLaneFn(op, DType::kFloat32, DType::kFloat32);
  const LaneFn f64 = FindLaneFn(op, DType::kFloat64, DType::kFloat64);
  for (int i = 0; i < 20000; ++i) {
    double x = std::copysign(std::exp2(exponent(random)), op == Op::kSin ? sign(random) : 1);
    const double y = sign(random) * 8;
    const long double want64 = exact(x, y);
    const double got64 =
        std::bit_cast<double>(f64(std::bit_cast<Lane>(x), std::bit_cast<Lane>(y), 0));
    const double ulp64 = std::nextafter(std::fabs(got64), kInf) - std::fabs(got64);
    ASSERT_LE(std::fabs(got64 - want64), ulps * ulp64) << Name(op) << " of " << x << ", " << y;
    const auto x32 = static_cast<float>(x), y32 = static_cast<float>(y);
    const long double want = exact(x32, y32);
    const float got = AsF32(f32(F32(x32), F32(y32), 0));
    const float ulp = std::nextafter(std::fabs(got), kInf) - std::fabs(got);
    ASSERT_LE(std::fabs(got - want), ulps * ulp) << Name(op) << " of " << x32 << ", " << y32;
  }
}

TEST(Lane, FunctionsAreAsPreciseAsTheTableSays) {
  CheckUlps(Op::kExp2, 1, 100, [](long double x, long double) { return std::exp2(x); });
  CheckUlps(Op::kLog2, 1, 1e30, [](long double x, long double) { return std::log2(x); });
  CheckUlps(Op::kSin, 1, 1e30, [](long double x, long double) { return std::sin(x); });
  CheckUlps(Op::kPow, 1, 1e4, [](long double x, long double y) { return std::pow(x, y); });
}

// Rounded from what f32 gives: within one unit, on every code.
TEST(Lane, NarrowFunctionsAreWithinAUnit) {
  for (const DTypeInfo& type : AllDTypes()) {
    if (!IsNarrowFloat(type.dtype) || IsStorage(type.dtype)) continue;
    const auto value = [&](Lane x) {
      return std::bit_cast<double>(ScalarFromMemory(type.dtype, static_cast<int64_t>(x)));
    };
    const auto check = [&](Op op, Lane x, Lane y, double exact) {
      const double got = value(FindLaneFn(op, type.dtype, type.dtype)(x, y, 0));
      const double nearest = std::bit_cast<double>(ScalarFromDouble(type.dtype, exact));
      if (!std::isfinite(nearest)) {
        ASSERT_TRUE(got == nearest || (std::isnan(got) && std::isnan(nearest)));
        return;
      }
      const int exponent = exact == 0 ? 1 - type.bias : std::max(std::ilogb(exact), 1 - type.bias);
      ASSERT_LE(std::fabs(got - exact), std::ldexp(1, exponent - type.mantissa_bits))
          << std::string(Name(op)) << " " << std::string(type.text) << " of " << value(x);
    };
    for (Lane x = 0; x < Lane{1} << type.bits; ++x) {
      check(Op::kExp2, x, 0, std::exp2(value(x)));
      check(Op::kLog2, x, 0, std::log2(value(x)));
      check(Op::kSin, x, 0, std::sin(value(x)));
      const Lane y = x * 0x9e3779b97f4a7c15 >> (64 - type.bits);
      check(Op::kPow, x, y, std::pow(value(x), value(y)));
    }
  }
}

TEST(Lane, FunctionsOnEdges) {
  EXPECT_TRUE(std::isnan(Unary(Op::kSin, kInf)));
  EXPECT_TRUE(std::signbit(Unary(Op::kSin, -0.0f)));
  EXPECT_EQ(Binary(Op::kPow, kNan, 0), 1);
  EXPECT_EQ(Binary(Op::kPow, 1, kNan), 1);
  EXPECT_EQ(Binary(Op::kPow, -2, 3), -8);
  EXPECT_TRUE(std::isnan(Binary(Op::kPow, -2, 0.5f)));
  EXPECT_EQ(Binary(Op::kPow, 0, -1), kInf);
  EXPECT_EQ(Binary(Op::kPow, -0.0f, -3), -kInf);
  EXPECT_EQ(Binary(Op::kPow, 2, 200), kInf);
}

// A half of an f16 unit and a little more, in types that f32 would round to the half.
TEST(Lane, CastsRoundOnce) {
  const auto cast = [](DType from, DType to, Lane x) {
    return FindLaneFn(Op::kCast, from, to)(x, 0, 0);
  };
  const double x = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(cast(DType::kFloat64, DType::kFloat16, std::bit_cast<Lane>(x)), 0x3c01u);
  EXPECT_EQ(cast(DType::kInt64, DType::kBFloat16, (1ull << 60) + (1ull << 52) + 1), 0x5d81u);
  EXPECT_EQ(cast(DType::kUInt64, DType::kBFloat16, (1ull << 63) + (1ull << 55) + 1), 0x5f01u);
  EXPECT_EQ(ScalarToMemory(DType::kBFloat16,
                           ScalarFromInt(DType::kBFloat16, (1ll << 60) + (1ll << 52) + 1)),
            0x5d81);
}

TEST(Lane, PackedBytes) {
  const uint8_t memory[] = {0x21, 0x43, 0x05};
  uint8_t lanes[5];
  Unpack(DType::kUInt4, memory, 5, lanes);
  EXPECT_THAT(lanes, ::testing::ElementsAre(1, 2, 3, 4, 5));
  uint8_t packed[3] = {0xff, 0xff, 0xff};
  Pack(DType::kInt4, lanes, 5, packed);
  EXPECT_THAT(packed, ::testing::ElementsAreArray(memory));
  const uint8_t bits[] = {0xe4};
  Unpack(DType::kInt2, bits, 4, lanes);
  EXPECT_THAT(std::span(lanes, 4), ::testing::ElementsAre(0, 1, 2, 3));
}

TEST(Lane, MulAccRoundsOnce) {
  const float x = 1.0f + std::ldexp(1.0f, -12);
  const float once = AsF32(FindLaneFn(Op::kMulAcc, DType::kFloat32, DType::kFloat32)(
      F32(x), F32(x), F32(-1.0f - std::ldexp(1.0f, -11))));
  EXPECT_EQ(once, std::ldexp(1.0f, -24));  // rounded twice it would be 0
}

TEST(Lane, MaxAndComparisonsOnEdges) {
  EXPECT_TRUE(std::isnan(Binary(Op::kMax, kNan, 1)));
  EXPECT_TRUE(std::isnan(Binary(Op::kMax, 1, kNan)));
  EXPECT_FALSE(std::signbit(Binary(Op::kMax, -0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(Binary(Op::kMax, 0.0f, -0.0f)));
  EXPECT_TRUE(std::signbit(Binary(Op::kMax, -0.0f, -0.0f)));
  const auto compare = [](Op op, float x, float y) {
    return FindLaneFn(op, DType::kFloat32, DType::kBool)(F32(x), F32(y), 0);
  };
  EXPECT_EQ(compare(Op::kCmpLt, kNan, 1), 0u);
  EXPECT_EQ(compare(Op::kCmpEq, kNan, kNan), 0u);
  EXPECT_EQ(compare(Op::kCmpNe, kNan, kNan), 1u);
  EXPECT_EQ(compare(Op::kCmpEq, 0.0f, -0.0f), 1u);
}

TEST(Lane, Casts) {
  const auto from_f32 = [](float x, DType to) {
    return LaneAsIndex(to, FindLaneFn(Op::kCast, DType::kFloat32, to)(F32(x), 0, 0));
  };
  EXPECT_EQ(from_f32(300, DType::kInt8), 127);
  EXPECT_EQ(from_f32(-300, DType::kInt8), -128);
  EXPECT_EQ(from_f32(-128.9f, DType::kInt8), -128);
  EXPECT_EQ(from_f32(127.9f, DType::kInt8), 127);
  EXPECT_EQ(from_f32(-1.9f, DType::kInt32), -1);
  EXPECT_EQ(from_f32(kNan, DType::kInt32), 0);
  EXPECT_EQ(from_f32(kInf, DType::kInt64), INT64_MAX);
  EXPECT_EQ(from_f32(-kInf, DType::kInt64), INT64_MIN);
  EXPECT_EQ(from_f32(2147483648.0f, DType::kInt32), INT32_MAX);
  EXPECT_EQ(from_f32(-5, DType::kUInt8), 0);
  EXPECT_EQ(from_f32(-0.5f, DType::kUInt8), 0);
  EXPECT_EQ(from_f32(kInf, DType::kUInt32), UINT32_MAX);
  EXPECT_EQ(FindLaneFn(Op::kCast, DType::kFloat32, DType::kUInt64)(F32(kInf), 0, 0), UINT64_MAX);
  EXPECT_EQ(from_f32(0.25f, DType::kBool), 1);
  EXPECT_EQ(from_f32(kNan, DType::kBool), 1);
  EXPECT_EQ(from_f32(-0.0f, DType::kBool), 0);
  const auto to_f32 = [](DType from, Lane x) {
    return AsF32(FindLaneFn(Op::kCast, from, DType::kFloat32)(x, 0, 0));
  };
  // By way of double this would round to 2^60 + 2^37 first and then down.
  EXPECT_EQ(to_f32(DType::kInt64, (1ull << 60) + (1ull << 36) + 1),
            std::ldexp(1.0f, 60) + std::ldexp(1.0f, 37));
  EXPECT_EQ(to_f32(DType::kUInt64, UINT64_MAX), std::ldexp(1.0f, 64));
  EXPECT_EQ(to_f32(DType::kInt8, 0xff), -1);
  EXPECT_EQ(to_f32(DType::kUInt8, 0xff), 255);
  EXPECT_EQ(FindLaneFn(Op::kCast, DType::kInt32, DType::kInt8)(0x181, 0, 0), 0x81u);
  EXPECT_EQ(FindLaneFn(Op::kCast, DType::kInt8, DType::kUInt64)(0xff, 0, 0), UINT64_MAX);
}

// Two implementations of CAST, this and the one behind CONST, on random values and edges.
TEST(Lane, CastsAgreeWithScalarConversions) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  constexpr double kEdges[] = {0.0,     -0.0,    0.5,          -0.5,         127.5,  255.5,
                               -128.5,  65535.9, 2147483647.5, 4294967295.5, 9.3e18, 1.9e19,
                               -9.3e18, 1e300,   -1e300,       3.5e38};
  for (const DTypeInfo& type : AllDTypes().subspan(1)) {
    const DType to = type.dtype;
    const auto check = [&](DType from, Lane lane, int64_t word) {
      const Lane got = FindLaneFn(Op::kCast, from, to)(lane, 0, 0);
      const Lane expected = LaneOfConst(to, word);
      if (IsFloat(to) && std::isnan(std::bit_cast<double>(word))) return;  // any NaN will do
      ASSERT_EQ(got, expected) << std::string(Name(from)) << " to " << std::string(Name(to));
      // And to memory and back.
      Lane memory = 0;
      WriteLane(to, got, reinterpret_cast<uint8_t*>(&memory));
      ASSERT_EQ(memory,
                static_cast<Lane>(ScalarToMemory(to, word)) & (~Lane{0} >> (64 - Info(to).bits)));
    };
    for (int round = 0; round < 2000; ++round) {
      const uint64_t bits = random() >> (random() % 64);
      check(DType::kInt64, bits, ScalarFromInt(to, static_cast<int64_t>(bits)));
      double value = round < static_cast<int>(std::size(kEdges)) ? kEdges[round]
                                                                 : std::bit_cast<double>(random());
      if (round % 2 == 1) value = std::ldexp(static_cast<double>(bits), -20);
      check(DType::kFloat64, std::bit_cast<Lane>(value), ScalarFromDouble(to, value));
    }
  }
}

TEST(Lane, FoldStartsAreIdentities) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (const DTypeInfo& type : AllDTypes().subspan(1)) {
    if (IsBool(type.dtype) || IsStorage(type.dtype)) continue;
    for (const ReduceKind kind : {ReduceKind::kAdd, ReduceKind::kMul, ReduceKind::kMax}) {
      for (int round = 0; round < 100; ++round) {
        const DType wide = FoldType(type.dtype);
        const Lane small = LaneOfIndex(type.dtype, static_cast<int8_t>(random()));
        const Lane x = FindLaneFn(Op::kCast, type.dtype, wide)(small, 0, 0);
        EXPECT_EQ(FoldFn(kind, type.dtype)(FoldStart(kind, type.dtype), x, 0), x)
            << std::string(type.text) << " " << std::string(Name(kind));
      }
    }
  }
}

}  // namespace
}  // namespace telegrad::reference
