// Products of integers whose sums are beyond what f32 has exactly, against sums in i64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Ints;
using test::OneNode;

std::vector<uint8_t> Unsigned(int64_t n, bool extreme, std::mt19937_64* random) {
  std::vector<uint8_t> out(n);
  for (uint8_t& v : out) v = extreme ? 255 - (*random)() % 2 : (*random)() % 256;
  return out;
}
std::vector<int8_t> Signed(int64_t n, bool extreme, std::mt19937_64* random) {
  std::vector<int8_t> out(n);
  for (int8_t& v : out) v = static_cast<int8_t>(extreme ? -128 + (*random)() % 2 : (*random)());
  return out;
}

TEST(ExactProducts, OfMatrices) {
  std::mt19937_64 random(1);
  for (const int64_t k : {3, 514, 515, 1500}) {
    for (const bool extreme : {false, true}) {
      for (const int zero : {-1, 0, 255}) {  // below 0: none is given
        SCOPED_TRACE(StrCat(k, " terms, zero point ", zero, extreme ? ", extreme" : ""));
        constexpr int64_t kM = 3, kN = 5;
        const auto a = Unsigned(kM * k, extreme, &random);
        const auto b = Signed(k * kN, extreme, &random);
        std::vector<HostTensor> inputs = {HostTensor::Of<uint8_t>({kM, k}, a),
                                          HostTensor::Of<int8_t>({k, kN}, b)};
        if (zero >= 0) {
          inputs.push_back(HostTensor::Of<uint8_t>({}, {static_cast<uint8_t>(zero)}));
          inputs.push_back(HostTensor::Of<int8_t>({}, {int8_t{127}}));
        }
        std::vector<int32_t> want;
        for (int64_t i = 0; i < kM; ++i) {
          for (int64_t j = 0; j < kN; ++j) {
            int64_t sum = 0;
            for (int64_t t = 0; t < k; ++t) {
              sum += (a[i * k + t] - std::max(zero, 0)) * (b[t * kN + j] - (zero < 0 ? 0 : 127));
            }
            want.push_back(static_cast<int32_t>(sum));
          }
        }
        const auto got = OneNode{"MatMulInteger"}(inputs);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(got->Values<int32_t>(), want);
      }
    }
  }
}

TEST(ExactProducts, OfConvolutions) {
  std::mt19937_64 random(2);
  for (const auto& [channels, groups] : {std::pair(70, 1), std::pair(120, 2), std::pair(4, 4)}) {
    for (const bool extreme : {false, true}) {
      SCOPED_TRACE(StrCat(channels, " channels in ", groups, extreme ? ", extreme" : ""));
      constexpr int64_t kSide = 5, kOut = 4;
      const int64_t in = channels / groups;
      const auto x = Unsigned(channels * kSide * kSide, extreme, &random);
      const auto w = Signed(kOut * in * 9, extreme, &random);
      std::vector<int32_t> want;
      for (int64_t o = 0; o < kOut; ++o) {
        for (int64_t at = 0; at < 9; ++at) {
          int64_t sum = 0;
          for (int64_t c = 0; c < in; ++c) {
            const int64_t channel = o / (kOut / groups) * in + c;
            for (int64_t t = 0; t < 9; ++t) {
              const int64_t row = at / 3 + t / 3, column = at % 3 + t % 3;
              sum += (x[(channel * kSide + row) * kSide + column] - 3) * w[(o * in + c) * 9 + t];
            }
          }
          want.push_back(static_cast<int32_t>(sum));
        }
      }
      const auto got = OneNode{"ConvInteger", 13, {{"group", int64_t{groups}}}}(
          {HostTensor::Of<uint8_t>({1, channels, kSide, kSide}, x),
           HostTensor::Of<int8_t>({kOut, in, 3, 3}, w), HostTensor::Of<uint8_t>({}, {uint8_t{3}})});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->Values<int32_t>(), want);
    }
  }
}

}  // namespace
}  // namespace telegrad::onnx
