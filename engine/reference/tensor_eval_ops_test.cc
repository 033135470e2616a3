// Ops that read one tensor after another's data, change widths, or reduce narrow floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/strings.h"
#include "engine/reference/tensor_eval_test.h"

namespace telegrad::reference {
namespace {

using ::testing::ElementsAre;

// What `line`, which may use %0.. of `params`, puts into a slot of `bytes` bytes.
Bytes Put(std::string_view params, std::string_view line, std::string_view result, int64_t bytes,
          std::vector<Bytes> slots, const Variables& variables = {}) {
  const size_t out = slots.size();
  slots.emplace_back(static_cast<size_t>(bytes), 0xee);
  const absl::Status status = Eval(StrCat(params, "\n%80 = ", line, "\n%81 = param ", result,
                                          " slot=", out, "\n%82 = store %81 %80\n%83 = sink %82"),
                                   slots, variables);
  EXPECT_TRUE(status.ok()) << status;
  return slots[out];
}

TEST(TensorEvalOps, CatAlongEachAxis) {
  const std::vector<Bytes> slots{ToBytes<int16_t>({1, 2, 3, 4}), ToBytes<int16_t>({5, 6})};
  EXPECT_THAT(FromBytes<int16_t>(Put("%0 = param i16 [2, 2] slot=0\n%1 = param i16 [1, 2] slot=1",
                                     "cat i16 [4, 2] %0 %1 %1 axes=[0]", "i16 [4, 2]", 16, slots)),
              ElementsAre(1, 2, 3, 4, 5, 6, 5, 6));
  EXPECT_THAT(FromBytes<int16_t>(Put("%0 = param i16 [2, 2] slot=0\n%1 = param i16 [2, 1] slot=1",
                                     "cat i16 [2, 3] %1 %0 axes=[1]", "i16 [2, 3]", 12, slots)),
              ElementsAre(5, 1, 2, 6, 3, 4));
}

TEST(TensorEvalOps, ScatterCombinesDuplicatesInOrder) {
  const auto scatter = [](std::string_view kind) {
    return FromBytes<int32_t>(
        Put("%0 = param i32 [3, 1] slot=0\n%1 = param i64 [5] slot=1\n%2 = param i32 [5, 1] slot=2",
            StrCat("scatter i32 [3, 1] %0 %1 %2 kind=", kind), "i32 [3, 1]", 12,
            {ToBytes<int32_t>({10, 20, 30}), ToBytes<int64_t>({2, 0, -1, 2, 3}),
             ToBytes<int32_t>({4, 5, 100, -6, 100})}));
  };
  EXPECT_THAT(scatter("set"), ElementsAre(5, 20, -6));
  EXPECT_THAT(scatter("add"), ElementsAre(15, 20, 28));
  EXPECT_THAT(scatter("mul"), ElementsAre(50, 20, -720));
  EXPECT_THAT(scatter("min"), ElementsAre(5, 20, -6));
  EXPECT_THAT(scatter("max"), ElementsAre(10, 20, 30));
}

TEST(TensorEvalOps, ScatterMinAndMaxOfFloats) {
  const float nan = std::nanf(""), kNegZero = -0.0f;
  const auto scatter = [&](std::string_view kind, std::vector<float> updates) {
    return FromBytes<float>(
        Put("%0 = param f32 [1] slot=0\n%1 = param u8 [2] slot=1\n%2 = param f32 [2] slot=2",
            StrCat("scatter f32 [1] %0 %1 %2 kind=", kind), "f32 [1]", 4,
            {ToBytes<float>({0}), ToBytes<uint8_t>({0, 0}), ToBytes(updates)}))[0];
  };
  EXPECT_TRUE(std::isnan(scatter("min", {nan, 1})));
  EXPECT_TRUE(std::isnan(scatter("max", {1, nan})));
  EXPECT_TRUE(std::signbit(scatter("min", {1, kNegZero})));
  EXPECT_FALSE(std::signbit(scatter("max", {-1, kNegZero})));
  EXPECT_EQ(scatter("min", {-3, 2}), -3);
}

TEST(TensorEvalOps, BitcastMovesWidthIntoTheLastAxis) {
  EXPECT_THAT(Put("%0 = param u32 [2, 1] slot=0", "bitcast u8 [2, 4] %0", "u8 [2, 4]", 8,
                  {ToBytes<uint32_t>({0x04030201, 0x08070605})}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(FromBytes<float>(Put("%0 = param u16 [4] slot=0", "bitcast f32 [2] %0", "f32 [2]", 8,
                                   {ToBytes<uint16_t>({0, 0x3f80, 0, 0xc000})})),
              ElementsAre(1.0f, -2.0f));
  // Rows of a packed type are strings of bits of their own, whether or not they end with a byte.
  EXPECT_THAT(Put("%0 = param u4 [2, 3] slot=0\n%1 = bitcast u2 [2, 6] %0", "cast u8 [2, 6] %1",
                  "u8 [2, 6]", 12, {Bytes{0xb4, 0xd1, 0x2e}}),
              ElementsAre(0, 1, 3, 2, 1, 0, 1, 3, 2, 3, 2, 0));
}

TEST(TensorEvalOps, PackedTypesAreDenseInSlots) {
  EXPECT_THAT(FromBytes<int8_t>(Put("%0 = param i4 [5] slot=0", "cast i8 [5] %0", "i8 [5]", 5,
                                    {Bytes{0x21, 0xf8, 0x07}})),
              ElementsAre(1, 2, -8, -1, 7));
  EXPECT_THAT(Put("%0 = param f32 [5] slot=0", "cast i4 [5] %0", "i4 [5]", 3,
                  {ToBytes<float>({1.9f, -100, 100, -1.5f, 7})}),
              ElementsAre(0x81, 0xf7, 0x07));
  EXPECT_THAT(Put("%0 = param u2 [3, 2] slot=0", "permute u2 [2, 3] %0 axes=[1, 0]", "u2 [2, 3]", 2,
                  {Bytes{0b11100100, 0b0110}}),
              ElementsAre(0x68, 0x07));
  EXPECT_THAT(FromBytes<float>(Put("%0 = param f4e2m1 [4] slot=0", "cast f32 [4] %0", "f32 [4]", 16,
                                   {Bytes{0x91, 0x7f}})),
              ElementsAre(0.5f, -0.5f, -6, 6));
}

TEST(TensorEvalOps, BoolsAreTrueWhateverTheirByte) {
  EXPECT_THAT(
      Put("%0 = param bool [3] slot=0", "bitcast u8 [3] %0", "u8 [3]", 3, {Bytes{0, 1, 0x80}}),
      ElementsAre(0, 1, 1));
}

// 2048 + 1 is 2048 in f16: a sum that rounds at every step would stay there.
TEST(TensorEvalOps, NarrowFloatsFoldInF32) {
  std::vector<uint16_t> x(4097, 0x3c00);  // 1
  EXPECT_THAT(
      FromBytes<uint16_t>(Put("%0 = param f16 [4097] slot=0", "reduce f16 [1] %0 kind=add axes=[0]",
                              "f16 [1]", 2, {ToBytes(x)})),
      ElementsAre(0x6c00));  // 4096, the even neighbour
  EXPECT_THAT(Put("%0 = param f8e4m3fn [2, 0] slot=0",
                  "reduce f8e4m3fn [2, 1] %0 kind=max axes=[1]", "f8e4m3fn [2, 1]", 2, {Bytes{}}),
              ElementsAre(0xfe, 0xfe));  // -448: there is no infinity
}

TEST(TensorEvalOps, GatherOfRowsByAnyIntegers) {
  EXPECT_THAT(
      Put("%0 = param u8 [2, 2] slot=0\n%1 = param u64 [2, 1] slot=1", "gather u8 [2, 1, 2] %0 %1",
          "u8 [2, 1, 2]", 4, {Bytes{1, 2, 3, 4}, ToBytes<uint64_t>({1, UINT64_MAX})}),
      ElementsAre(3, 4, 0, 0));
}

TEST(TensorEvalOps, IotaWrapsInItsType) {
  const Bytes out = Put("%0 = iota i8 [200]", "cast i8 [200] %0", "i8 [200]", 200, {});
  EXPECT_EQ(out[127], 127);
  EXPECT_EQ(out[128], 128);  // -128
}

}  // namespace
}  // namespace telegrad::reference
