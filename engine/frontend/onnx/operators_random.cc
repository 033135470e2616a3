// Operators that draw numbers. A graph has no state, so each run draws the same ones: those of
// `seed`, or of the name of the result where there is none. They are Threefry's words of the
// element's position.
#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "engine/base/checked.h"
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxMask = int64_t{1} << 24;  // elements of a mask made on the host

// The seed as the node says it; FNV-1a of the result's name if it does not.
absl::StatusOr<uint64_t> SeedOf(NodeContext& c) {
  if (c.HasAttribute("seed")) {
    TG_ASSIGN_OR_RETURN(const float seed, c.Float("seed", 0));
    return static_cast<uint64_t>(std::bit_cast<uint32_t>(seed)) << 32;
  }
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : c.node().outputs.empty() ? std::string_view() : c.node().outputs[0]) {
    hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3u;
  }
  return hash;
}

// f64 in [0, 1) of 53 random bits each. Streams differ in the numbers that they draw.
absl::StatusOr<Tensor> UniformNumbers(NodeContext& c, const Shape& shape, uint64_t stream = 0) {
  TG_RETURN_IF_ERROR(CheckedByteSize(DType::kUInt64, shape).status());
  TG_ASSIGN_OR_RETURN(const uint64_t seed, SeedOf(c));
  Builder& b = c.builder();
  const Tensor counter = b.Iota(DType::kUInt64, NumElements(shape));
  const Tensor key = b.Const(DType::kUInt64, static_cast<int64_t>(seed + stream));
  const Tensor words =
      b.Make(Op::kThreefry, DType::kVoid, {counter, key.Expand({NumElements(shape)})});
  return (words.ShiftRight(11).Cast(DType::kFloat64) * 0x1p-53).Reshape(shape);
}

// Box and Muller's transform.
absl::StatusOr<Tensor> NormalNumbers(NodeContext& c, const Shape& shape) {
  TG_ASSIGN_OR_RETURN(const Tensor radius, UniformNumbers(c, shape, 1));
  TG_ASSIGN_OR_RETURN(const Tensor angle, UniformNumbers(c, shape, 2));
  return ((1.0 - radius).Log() * -2.0).Sqrt() * (angle * (2 * std::numbers::pi)).Cos();
}

absl::Status DrawUniform(NodeContext& c, const Shape& shape, DType dtype) {
  TG_ASSIGN_OR_RETURN(const float low, c.Float("low", 0));
  TG_ASSIGN_OR_RETURN(const float high, c.Float("high", 1));
  TG_ASSIGN_OR_RETURN(const Tensor draws, UniformNumbers(c, shape));
  return c.Output((draws * (static_cast<double>(high) - low) + low).Cast(dtype));
}

absl::Status DrawNormal(NodeContext& c, const Shape& shape, DType dtype) {
  TG_ASSIGN_OR_RETURN(const float mean, c.Float("mean", 0));
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("scale", 1));
  TG_ASSIGN_OR_RETURN(const Tensor draws, NormalNumbers(c, shape));
  return c.Output((draws * scale + mean).Cast(dtype));
}

template <typename F>
absl::Status OfShape(NodeContext& c, F draw) {
  TG_ASSIGN_OR_RETURN(const Attribute* shape, c.Required("shape", AttributeType::kInts));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "dtype", DType::kFloat32));
  return draw(c, shape->ints, dtype);
}

template <typename F>
absl::Status OfInput(NodeContext& c, F draw) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "dtype", x.dtype()));
  return draw(c, ToShape(x.shape()), dtype);
}

// Which elements are kept: numpy.random.RandomState(seed).uniform(size) >= ratio, which ONNX's
// cases are made with. It draws 53 bits of two words of the Mersenne Twister.
absl::StatusOr<Tensor> KeptMask(NodeContext& c, const Shape& shape, double ratio) {
  TG_ASSIGN_OR_RETURN(const int64_t seed, c.Int("seed", 0));
  TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(DType::kBool, shape));
  if (bytes > kMaxMask) {
    return Unimplemented("a training mask of ", bytes, " elements; supported are ", kMaxMask);
  }
  std::mt19937 random(static_cast<uint32_t>(seed));
  HostTensor mask{DType::kBool, shape, std::string(static_cast<size_t>(bytes), '\0')};
  for (char& kept : mask.bytes) {
    const double high = random() >> 5, low = random() >> 6;
    kept = (high * 0x1p26 + low) * 0x1p-53 >= ratio ? 1 : 0;
  }
  return c.Weight(std::move(mask));
}

// Input 1 from opset 12 on, an attribute before.
absl::StatusOr<double> DropoutRatio(NodeContext& c) {
  if (c.opset() < 12) return c.Float("ratio", 0.5f);
  return c.HasInput(1) ? c.Number(1) : 0.5;
}

absl::StatusOr<bool> DropoutTrains(NodeContext& c) {
  if (c.opset() < 7) {
    TG_ASSIGN_OR_RETURN(const int64_t test, c.Int("is_test", 0));
    return test == 0;
  }
  if (c.opset() < 12 || !c.HasInput(2)) return false;
  TG_ASSIGN_OR_RETURN(const double training, c.Number(2));
  return training != 0;
}

}  // namespace

absl::Status RandomUniformOp(NodeContext& c) { return OfShape(c, DrawUniform); }
absl::Status RandomNormalOp(NodeContext& c) { return OfShape(c, DrawNormal); }
absl::Status RandomUniformLikeOp(NodeContext& c) { return OfInput(c, DrawUniform); }
absl::Status RandomNormalLikeOp(NodeContext& c) { return OfInput(c, DrawNormal); }

// 1 with the probability that the element says.
absl::Status BernoulliOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "dtype", x.dtype()));
  TG_ASSIGN_OR_RETURN(const Tensor draws, UniformNumbers(c, ToShape(x.shape())));
  return c.Output(draws.Lt(x.Cast(DType::kFloat64)).Cast(dtype));
}

// Classes drawn by unnormalized logarithms of probabilities: the number of classes whose summed
// probability a draw has passed.
absl::Status MultinomialOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "dtype", DType::kInt32));
  TG_ASSIGN_OR_RETURN(const int64_t samples, c.Int("sample_size", 1));
  if (x.rank() != 2 || x.dim(1) < 1 || samples < 0) {
    return InvalidArgument(samples, " samples of shape ", ToString(x.shape()),
                           ", expected [batch, classes]");
  }
  TG_ASSIGN_OR_RETURN(const Tensor draws, UniformNumbers(c, {x.dim(0), samples, 1}));
  const Tensor sums = x.Cast(DType::kFloat64).Softmax(-1).CumSum(-1).Unsqueeze(1);
  const Tensor passed = draws.Ge(sums).Cast(DType::kInt64).Sum({-1});
  return c.Output(passed.Minimum(x.dim(1) - 1).Cast(dtype));
}

// At inference the identity with a mask that is all true. In training elements are 0 with
// probability `ratio`, the others divided by 1 - ratio.
absl::Status DropoutOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const bool training, DropoutTrains(c));
  const Shape shape = ToShape(x.shape());
  const DType mask_type = c.opset() < 10 ? x.dtype() : DType::kBool;
  double ratio = 0;
  c.Ignore("seed");
  if (training) {
    TG_ASSIGN_OR_RETURN(ratio, DropoutRatio(c));
  } else {
    c.Ignore("ratio");
  }
  if (ratio == 0) {
    TG_RETURN_IF_ERROR(c.Output(x));
    return c.Output(c.builder().Full(mask_type, shape, 1));
  }
  if (!(ratio > 0 && ratio < 1)) {
    return InvalidArgument("the ratio is ", ratio, ", expected at least 0 and less than 1");
  }
  TG_ASSIGN_OR_RETURN(const Tensor kept, KeptMask(c, shape, ratio));
  TG_RETURN_IF_ERROR(c.Output(kept.Where((x * (1 / (1 - ratio))).Cast(x.dtype()), 0)));
  return c.Output(kept.Cast(mask_type));
}

}  // namespace telegrad::onnx
