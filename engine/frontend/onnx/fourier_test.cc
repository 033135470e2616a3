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

// Of two signals [2, length, 1 or 2], along axis 1.
std::vector<std::complex<double>> TransformOf(const HostTensor& x, int64_t length, double sign) {
  const int64_t parts = x.shape[2];
  const std::vector<float> values = x.Values<float>();
  std::vector<std::complex<double>> out;
  for (int64_t signal = 0; signal < 2; ++signal) {
    for (int64_t k = 0; k < length; ++k) {
      std::complex<double> sum = 0;
      for (int64_t n = 0; n < length; ++n) {
        const int64_t at = parts * (signal * length + n);
        const double turn = static_cast<double>(k * n % length) / static_cast<double>(length);
        sum += std::complex<double>(values[at], parts == 2 ? values[at + 1] : 0) *
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

// Of large prime factors, by a transform of another length; of real signals, by one of the half.
TEST(Fourier, PrimesAndRealSignalsAreTheSum) {
  std::mt19937_64 random(6);
  for (const int64_t length : {8, 61, 67, 100, 105, 106, 117, 130, 211}) {
    for (const int64_t parts : {1, 2}) {
      const HostTensor x = Random({2, length, parts}, &random);
      for (const auto [inverse, onesided] : {std::pair{0, 0}, {1, 0}, {0, 1}}) {
        if (parts == 2 && onesided != 0) continue;
        SCOPED_TRACE(StrCat(length, " ", parts, " ", inverse, " ", onesided));
        const auto got = OneNode{
            .op = "DFT",
            .opset = 19,
            .attributes = {{"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}}}({x});
        ASSERT_TRUE(got.ok()) << got.status();
        const auto want = TransformOf(x, length, inverse != 0 ? 1 : -1);
        const std::vector<float> values = got->Values<float>();
        const int64_t bins = onesided != 0 ? length / 2 + 1 : length;
        ASSERT_EQ(std::ssize(values), 2 * 2 * bins);
        for (int64_t i = 0; i < 2 * bins; ++i) {
          const auto& exact = want[static_cast<size_t>(i / bins * length + i % bins)];
          ASSERT_NEAR(values[2 * i], exact.real(), 4e-5) << i;
          ASSERT_NEAR(values[2 * i + 1], exact.imag(), 4e-5) << i;
        }
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

// Nothing in it has as many elements as a matrix of the squared length.
TEST(Fourier, ALongTransformIsAGraphOfItsFactors) {
  for (const auto& [length, parts] :
       {std::pair{1 << 18, 2}, {1 << 18, 1}, {4099, 1}, {4099, 2}, {2187, 1}}) {
    const auto onnx = ImportOnnx(test::ModelWriter()
                                     .Input("x", DType::kFloat32, {1, length, parts})
                                     .Node("DFT", {"x"}, {"y"})
                                     .Output("y")
                                     .File(19));
    ASSERT_TRUE(onnx.ok()) << onnx.status();
    const UOp root = onnx->plan.graph.root();
    for (const uint32_t id : PostOrder(root)) {
      ASSERT_LE(NumElements(root.graph()->at(id).shape()), 4 * length);
    }
  }
}

}  // namespace
}  // namespace telegrad::onnx
