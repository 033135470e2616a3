// Transforms of every kind of length against the sum that defines them.
#include "engine/frontend/onnx/fourier.h"

#include <cmath>
#include <complex>
#include <iostream>
#include <numbers>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::OneNode;
using test::Random;

// Of two signals [2, length, 2], along axis 1.
std::vector<std::complex<double>> TransformOf(const HostTensor& x, int64_t length, double sign) {
  const std::vector<float> values = x.Values<float>();
  std::vector<std::complex<double>> out;
  for (int64_t signal = 0; signal < 2; ++signal) {
    for (int64_t k = 0; k < length; ++k) {
      std::complex<double> sum = 0;
      for (int64_t n = 0; n < length; ++n) {
        const int64_t at = 2 * (signal * length + n);
        const double turn = static_cast<double>(k * n % length) / static_cast<double>(length);
        sum += std::complex<double>(values[at], values[at + 1]) *
               std::polar(1.0, sign * 2 * std::numbers::pi * turn);
      }
      out.push_back(sign > 0 ? sum / static_cast<double>(length) : sum);
    }
  }
  return out;
}

TEST(Fourier, TransformsOfAnyLengthAreTheSum) {
  std::mt19937_64 random(5);
  for (const int64_t length : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                               14, 15, 16, 17, 20, 24, 26, 30, 32, 60, 77, 120}) {
    EXPECT_EQ(IsFastLength(length), length != 1 && length != 17) << length;
    const HostTensor x = Random({2, length, 2}, &random);
    for (const int64_t inverse : {0, 1}) {
      const auto got = OneNode{.op = "DFT", .opset = 19, .attributes = {{"inverse", inverse}}}({x});
      ASSERT_TRUE(got.ok()) << got.status();
      const std::vector<float> values = got->Values<float>();
      const auto want = TransformOf(x, length, inverse != 0 ? 1 : -1);
      ASSERT_EQ(values.size(), 2 * want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(values[2 * i], want[i].real(), 2e-5) << length << ", " << i;
        ASSERT_NEAR(values[2 * i + 1], want[i].imag(), 2e-5) << length << ", " << i;
      }
    }
  }
}

TEST(Fourier, LengthsThatAreNotFast) {
  EXPECT_FALSE(IsFastLength(0));
  EXPECT_FALSE(IsFastLength(-4));
  EXPECT_FALSE(IsFastLength(2 * 31));
  EXPECT_TRUE(IsFastLength(1 << 22));
  EXPECT_FALSE(IsFastLength(int64_t{1} << 23));
}

// A matrix of the squared length would be too large.
TEST(Fourier, ALongTransformIsAGraphOfItsFactors) {
  const int64_t length = 1 << 18;
  const auto onnx = ImportOnnx(test::ModelWriter()
                                   .Input("x", DType::kFloat32, {1, length, 2})
                                   .Node("DFT", {"x"}, {"y"})
                                   .Output("y")
                                   .File(19));
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  for (const Slot& slot : onnx->plan.slots) EXPECT_LE(NumElements(slot.shape), 2 * length);
}

}  // namespace
}  // namespace telegrad::onnx
