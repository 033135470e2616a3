// Each limit of tensor maps, just inside and just outside, and the bytes that a map spans.
#include "devices/api/check_tensor_map.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// 100 x 20 x 3 of f32 with gaps, read by boxes of 32 x 4.
TensorMap Map() {
  return {.rank = 3,
          .sizes = {100, 20, 3, 1, 1},
          .strides = {4, 416, 8352, 0, 0},
          .boxes = {32, 8, 1, 1, 1},
          .steps = {1, 2, 1, 1, 1},
          .swizzle = TensorSwizzle::k128Bytes};
}

TensorMap Interleaved() {
  TensorMap map = Map();
  map.interleave = TensorInterleave::k32Bytes;
  map.swizzle = TensorSwizzle::k32Bytes;
  return map;
}

std::string Why(const std::function<void(TensorMap&)>& change, TensorMap map = Map()) {
  change(map);
  const absl::Status status = CheckTensorMap(map);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  return std::string(status.message());
}

TEST(CheckTensorMap, TakesWhatIsWithinTheLimits) {
  EXPECT_EQ(Why([](TensorMap&) {}), "");
  EXPECT_EQ(Why([](TensorMap& m) { m.sizes[2] = int64_t{1} << 32, m.strides[2] = 16; }), "");
  EXPECT_EQ(Why([](TensorMap& m) { m.strides[2] = (int64_t{1} << 40) - 16; }), "");
  EXPECT_EQ(Why([](TensorMap& m) { m.boxes[1] = 256, m.steps[1] = 8; }), "");
  EXPECT_EQ(Why([](TensorMap& m) { m.fill = TensorFill::kNan; }), "");
  EXPECT_EQ(Why([](TensorMap& m) {
              m = TensorMap{.sizes = {7, 1, 1, 1, 1},
                            .strides = {1, 0, 0, 0, 0},
                            .boxes = {256, 1, 1, 1, 1},
                            .element = DType::kFloat8E4M3};
            }),
            "");
  EXPECT_EQ(Why([](TensorMap& m) { m.strides[1] = 16; }), "") << "rows that overlap";
  EXPECT_EQ(Why([](TensorMap& m) { m.rank = 5, m.strides[3] = 16, m.strides[4] = 32; }), "");
  EXPECT_EQ(Why([](TensorMap& m) { m.boxes[0] = 3, m.steps[0] = 8; }, Interleaved()), "");
  EXPECT_EQ(Why([](TensorMap& m) {
              m.interleave = TensorInterleave::k16Bytes, m.swizzle = TensorSwizzle::k64Bytes;
            }),
            "");
}

TEST(CheckTensorMap, SaysWhatIsNot) {
  EXPECT_THAT(Why([](TensorMap& m) { m.rank = 0; }), HasSubstr("rank 0, expected 1 to 5"));
  EXPECT_THAT(Why([](TensorMap& m) { m.rank = 6; }), HasSubstr("rank 6, expected 1 to 5"));
  EXPECT_THAT(Why([](TensorMap& m) { m.element = DType::kVoid; }), HasSubstr("whole bytes"));
  EXPECT_THAT(Why([](TensorMap& m) { m.element = DType::kFloat4E2M1; }),
              HasSubstr("a tensor map of f4e2m1, expected whole bytes"));
  EXPECT_THAT(Why([](TensorMap& m) { m.element = DType::kInt32, m.fill = TensorFill::kNan; }),
              HasSubstr("i32 filled with NaN, expected f16, bf16, f32 or f64"));
  EXPECT_THAT(Why([](TensorMap& m) { m.sizes[1] = 0; }),
              HasSubstr("a size of 0 in dimension 1, expected 1 to 2^32"));
  EXPECT_THAT(Why([](TensorMap& m) { m.sizes[1] = (int64_t{1} << 32) + 1; }),
              HasSubstr("in dimension 1, expected 1 to 2^32"));
  EXPECT_THAT(Why([](TensorMap& m) { m.boxes[2] = 0; }),
              HasSubstr("a box of 0 in dimension 2, expected 1 to 256"));
  EXPECT_THAT(Why([](TensorMap& m) { m.boxes[2] = 257; }), HasSubstr("a box of 257"));
  EXPECT_THAT(Why([](TensorMap& m) { m.steps[2] = 0; }),
              HasSubstr("a step of 0 in dimension 2, expected 1 to 8"));
  EXPECT_THAT(Why([](TensorMap& m) { m.steps[2] = 9; }), HasSubstr("a step of 9"));
  EXPECT_THAT(Why([](TensorMap& m) { m.steps[0] = 2; }),
              HasSubstr("a step of 2 in dimension 0, expected 1"));
  EXPECT_THAT(Why([](TensorMap& m) { m.strides[0] = 8; }),
              HasSubstr("a stride of 8 bytes in dimension 0, expected 4"));
  EXPECT_THAT(Why([](TensorMap& m) { m.strides[1] = 424; }),
              HasSubstr("a stride of 424 bytes in dimension 1, expected a multiple of 16"));
  EXPECT_THAT(Why([](TensorMap& m) { m.strides[1] = 0; }), HasSubstr("a stride of 0"));
  EXPECT_THAT(Why([](TensorMap& m) { m.strides[1] = -416; }), HasSubstr("a stride of -416"));
  EXPECT_THAT(Why([](TensorMap& m) { m.strides[1] = int64_t{1} << 40; }), HasSubstr("2^40"));
  EXPECT_THAT(Why([](TensorMap& m) { m.boxes[0] = 31; }),
              HasSubstr("a box of 124 bytes in dimension 0, expected a multiple of 16"));
  EXPECT_THAT(Why([](TensorMap& m) { m.boxes[0] = 36; }),
              HasSubstr("a box of 144 bytes in dimension 0, expected at most the 128"));
  EXPECT_THAT(Why([](TensorMap& m) { m.swizzle = TensorSwizzle::k64Bytes; }),
              HasSubstr("at most the 64 of its swizzle"));
  EXPECT_THAT(Why([](TensorMap& m) { m.rank = 2; }),
              HasSubstr("dimension 2 of a tensor map of rank 2 is described"));
  EXPECT_THAT(Why([](TensorMap& m) {
                m.sizes = {1, 1 << 30, 1 << 30, 1, 1},
                m.strides[1] = m.strides[2] = (int64_t{1} << 40) - 16;
              }),
              HasSubstr("more than 2^63 - 1 bytes"));
}

TEST(CheckTensorMap, InterleavedMapsHaveTheirOwnLimits) {
  EXPECT_THAT(
      Why([](TensorMap& m) { m.rank = 2, m.sizes[2] = 1, m.strides[2] = 0; }, Interleaved()),
      HasSubstr("an interleaved tensor map of rank 2, expected at least 3"));
  EXPECT_THAT(Why([](TensorMap& m) { m.swizzle = TensorSwizzle::kNone; }, Interleaved()),
              HasSubstr("expected a swizzle of 32"));
  EXPECT_THAT(Why([](TensorMap& m) { m.strides[1] = 432; }, Interleaved()),
              HasSubstr("expected a multiple of 32"));
  EXPECT_EQ(Interleaved().alignment(), 32);
  EXPECT_EQ(Map().alignment(), 16);
}

TEST(CheckTensorMap, SpansItsElements) {
  EXPECT_EQ(*TensorMapBytes(Map()), 99 * 4 + 19 * 416 + 2 * 8352 + 4);
  TensorMap one;
  one.strides[0] = 4;
  EXPECT_EQ(*TensorMapBytes(one), 4);
}

}  // namespace
}  // namespace telegrad
