// Scalar values of every type: wrapping of integers, rounding and saturation of floats, and the
// form in memory.
#include "engine/ir/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace telegrad {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Scalar, IntegersWrap) {
  EXPECT_EQ(ScalarFromInt(DType::kInt8, 128), -128);
  EXPECT_EQ(ScalarFromInt(DType::kInt8, -129), 127);
  EXPECT_EQ(ScalarFromInt(DType::kUInt8, -1), 255);
  EXPECT_EQ(ScalarFromInt(DType::kInt16, 40000), 40000 - 65536);
  EXPECT_EQ(ScalarFromInt(DType::kUInt16, 65536), 0);
  EXPECT_EQ(ScalarFromInt(DType::kInt32, int64_t{1} << 31), INT32_MIN);
  EXPECT_EQ(ScalarFromInt(DType::kUInt32, -1), int64_t{UINT32_MAX});
  EXPECT_EQ(ScalarFromInt(DType::kInt64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(ScalarFromInt(DType::kUInt64, -1), -1);
  EXPECT_EQ(ScalarFromInt(DType::kBool, 256), 1);
}

TEST(Scalar, IntegersToFloatRoundOnce) {
  // By way of double the tie would be resolved before the last bit is seen.
  const int64_t just_above_a_tie = (int64_t{1} << 60) + (int64_t{1} << 36) + 1;
  EXPECT_EQ(ScalarAsDouble(DType::kFloat32, ScalarFromInt(DType::kFloat32, just_above_a_tie)),
            std::ldexp(1.0, 60) + std::ldexp(1.0, 37));
  EXPECT_EQ(ScalarAsDouble(DType::kFloat64, ScalarFromInt(DType::kFloat64, -3)), -3.0);
}

TEST(Scalar, FloatsSaturateAfterTruncation) {
  EXPECT_EQ(ScalarFromDouble(DType::kInt8, 127.99), 127);
  EXPECT_EQ(ScalarFromDouble(DType::kInt8, 128), 127);
  EXPECT_EQ(ScalarFromDouble(DType::kInt8, -128.99), -128);
  EXPECT_EQ(ScalarFromDouble(DType::kInt8, -kInf), -128);
  EXPECT_EQ(ScalarFromDouble(DType::kUInt8, -0.5), 0);
  EXPECT_EQ(ScalarFromDouble(DType::kUInt8, 255.99), 255);
  EXPECT_EQ(ScalarFromDouble(DType::kUInt8, 256), 255);
  EXPECT_EQ(ScalarFromDouble(DType::kInt64, 9.3e18), INT64_MAX);
  EXPECT_EQ(ScalarFromDouble(DType::kInt64, -kInf), INT64_MIN);
  EXPECT_EQ(ScalarFromDouble(DType::kUInt64, kInf), -1);  // the word of UINT64_MAX
  EXPECT_EQ(ScalarFromDouble(DType::kUInt64, 9.3e18), static_cast<int64_t>(9300000000000000000u));
  EXPECT_EQ(ScalarFromDouble(DType::kInt32, std::nan("")), 0);
  EXPECT_EQ(ScalarFromDouble(DType::kBool, std::nan("")), 1);
  EXPECT_EQ(ScalarFromDouble(DType::kBool, -0.0), 0);
  EXPECT_EQ(ScalarFromDouble(DType::kBool, 0.25), 1);
}

TEST(Scalar, FloatsRoundToTheirType) {
  EXPECT_EQ(ScalarAsDouble(DType::kFloat32, ScalarFromDouble(DType::kFloat32, 0.1)),
            static_cast<double>(0.1f));
  EXPECT_EQ(ScalarAsDouble(DType::kFloat64, ScalarFromDouble(DType::kFloat64, 0.1)), 0.1);
  EXPECT_EQ(ScalarAsDouble(DType::kUInt64, -1), std::ldexp(1.0, 64));
}

TEST(Scalar, MemoryRoundTrip) {
  for (const DTypeInfo& type : AllDTypes().subspan(1)) {
    for (double value : {0.0, 1.0, 100.0, -1.0, -100.0, 0.5}) {
      const int64_t word = ScalarFromDouble(type.dtype, value);
      EXPECT_EQ(ScalarFromMemory(type.dtype, ScalarToMemory(type.dtype, word)), word)
          << std::string(type.text) << " " << value;
    }
  }
  EXPECT_EQ(ScalarToMemory(DType::kFloat32, ScalarFromDouble(DType::kFloat32, 1.0)), 0x3f800000);
  EXPECT_EQ(ScalarFromMemory(DType::kInt8, 0xff), -1);
  EXPECT_EQ(ScalarFromMemory(DType::kBool, 2), 1);
  // Only the low bytes are the element.
  EXPECT_EQ(ScalarFromMemory(DType::kBool, 0x100), 0);
  EXPECT_EQ(ScalarFromMemory(DType::kUInt8, 0x101), 1);
}

TEST(Scalar, VoidIsHarmless) { EXPECT_EQ(ScalarFromDouble(DType::kVoid, 3.0), 0); }

}  // namespace
}  // namespace telegrad
