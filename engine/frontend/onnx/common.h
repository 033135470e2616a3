// What the functions of several families of operators share.
#pragma once

#include <numeric>
#include <optional>

#include "engine/frontend/onnx/node_context.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/ops/windows.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {

// The element type of a number of TensorProto.DataType.
absl::StatusOr<DType> TypeOf(int64_t number);
// The same of an attribute; `otherwise` if the node does not have it.
absl::StatusOr<DType> TypeAttribute(NodeContext& c, std::string_view name, DType otherwise);

inline Axes AllAxes(int64_t rank) {
  Axes out(static_cast<size_t>(rank));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// [C] as [C, 1, ...] that broadcasts against channels, axis `axis` of a tensor of `rank`.
Tensor AlongAxis(const Tensor& x, int64_t axis, int64_t rank);

// Sizes that each run decides become their bounds, with zeros behind the elements.
Tensor WithBounds(const Tensor& x);

// A storage type's elements as the smallest type with arithmetic that holds all of them.
Tensor Readable(const Tensor& x);

// Rounds and clamps as ONNX's Cast does.
struct CastRules {
  bool saturate = true;                // of the 8-bit floats
  std::string_view round_mode = "up";  // of f8e8m0
};
absl::StatusOr<CastRules> ReadCastRules(NodeContext& c);
Tensor CastTo(const Tensor& x, DType to, const CastRules& rules = {});

// Elements of `bits` each, the lowest first, out of bytes, as i32: the last axis grows.
Tensor Unpacked(const Tensor& bytes, int64_t bits);

// The least and the largest integer of a type of at most 32 bits, and those of i64.
struct IntegerRange {
  double low, high;
};
IntegerRange RangeOf(DType dtype);

// The nearest integers of floats, halves to even, of what lies beyond `low` and `high` these: at
// most 2^22 away from 0, so that f32 and f64 round where a number is added that has no bits for
// fractions.
inline constexpr double kFarInteger = 1 << 22;
Tensor RoundedWithin(const Tensor& x, double low = -kFarInteger, double high = kFarInteger);
// The same of x / scale, which `low` and `high` are bounds of. By a scale that is known it is not
// divided, which takes a processor ten times as long as a product, but the result has the same
// bits.
Tensor RoundedQuotient(const Tensor& x, const Tensor& scale, double low = -kFarInteger,
                       double high = kFarInteger);
// round(x / scale) + zero, within the integers of type `to`; an invalid scale is 1, an invalid zero
// point 0.
Tensor RoundInto(const Tensor& x, const Tensor& scale, const Tensor& zero, DType to);

// What DequantizeLinear gives of integers of 8 or 16 bits, if its scale and zero point are one
// known number each: scale (whole - zero), which never decreases.
struct Dequantized {
  Tensor whole;
  int64_t zero = 0;
  float scale = 1;  // above 0
  // The same of other integers.
  Tensor Of(const Tensor& other) const;
};
std::optional<Dequantized> DequantizedOf(const Tensor& x);

// The convolution of `x` [N, C, ...] with `weight` that the attributes of Conv say.
absl::StatusOr<Tensor> ConvByAttributes(NodeContext& c, const Tensor& x, const Tensor& weight);
// The means of windows that the attributes of AveragePool say.
absl::StatusOr<Tensor> AveragePoolByAttributes(NodeContext& c, const Tensor& x);
// The windows of a convolution alone.
absl::StatusOr<AxisWindows> WindowsByAttributes(NodeContext& c, const Tensor& x,
                                                const Tensor& weight);

}  // namespace telegrad::onnx
