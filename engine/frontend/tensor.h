// Tensor: a lazy value. A handle on a node of a Builder's graph; every method adds nodes and
// returns the handle of the result. Nothing is computed here.
//
// Shapes follow NumPy's broadcasting, negative axes count from the end. Element types never change
// by themselves: both operands of a binary operation have one type, a number takes the tensor's.
// Errors are sticky in the builder and name the operation, the shapes and the axis; the result is
// then an invalid tensor, which every further operation passes on. Builder::Finish reports the
// first error.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

class Builder;

using Axes = std::vector<int64_t>;

// Window geometry of a convolution or pool over the last axes. Each list holds one number for each
// spatial axis or one number for all; `pads` holds (before, after) for each spatial axis, or one
// number, or nothing.
struct Window {
  std::vector<int64_t> stride = {1};
  std::vector<int64_t> dilation = {1};
  std::vector<int64_t> pads = {};
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(Builder* builder, UOp uop) : builder_(builder), uop_(uop) {}

  bool valid() const { return uop_.valid(); }
  Builder* builder() const { return builder_; }
  UOp uop() const { return uop_; }
  // Of an invalid tensor: kVoid, [].
  DType dtype() const { return valid() ? uop_.dtype() : DType::kVoid; }
  ShapeView shape() const { return valid() ? uop_.shape() : ShapeView{}; }
  int64_t rank() const { return static_cast<int64_t>(shape().size()); }
  // The size of an axis; 0 if there is no such axis.
  int64_t dim(int64_t axis) const;
  int64_t size() const { return NumElements(shape()); }
  // The number `value` as a scalar of this tensor's element type.
  Tensor Like(double value) const;

  // Elementwise.
  Tensor Neg() const;
  Tensor Exp() const;
  Tensor Exp2() const;
  Tensor Log() const;
  Tensor Log2() const;
  Tensor Sqrt() const;
  Tensor Reciprocal() const;
  Tensor Abs() const;
  Tensor Floor() const;
  Tensor Trunc() const;
  Tensor Relu() const;
  Tensor Sigmoid() const;
  Tensor Tanh() const;
  Tensor Erf() const;       // at most 1e-6 of the true value away, relative to it
  Tensor Gelu() const;      // x times the normal distribution's probability to be below x
  Tensor GeluTanh() const;  // its approximation by a tanh (Hendrycks and Gimpel 2016)
  Tensor Not() const;       // of bool
  Tensor Cast(DType dtype) const;
  Tensor Maximum(const Tensor& other) const;
  Tensor Minimum(const Tensor& other) const;
  Tensor Pow(const Tensor& exponent) const;      // of floats
  Tensor FloorMod(const Tensor& divisor) const;  // of integers, with the sign of the divisor
  Tensor TruncMod(const Tensor& divisor) const;  // of integers, with this one's sign
  Tensor And(const Tensor& other) const;         // bitwise; of bool, logical
  Tensor Or(const Tensor& other) const;
  Tensor Xor(const Tensor& other) const;
  Tensor Lt(const Tensor& other) const;
  Tensor Le(const Tensor& other) const;
  Tensor Gt(const Tensor& other) const;
  Tensor Ge(const Tensor& other) const;
  Tensor Eq(const Tensor& other) const;
  Tensor Ne(const Tensor& other) const;
  // This (bool) ? yes : no.
  Tensor Where(const Tensor& yes, const Tensor& no) const;

  // Movement.
  Tensor Reshape(const Shape& shape) const;  // one dim may be -1
  Tensor Expand(const Shape& shape) const;   // NumPy's broadcast_to
  Tensor Permute(const Axes& axes) const;
  Tensor Transpose(int64_t a = -2, int64_t b = -1) const;
  Tensor Flip(const Axes& axes) const;
  // (before, after) for each axis, filled with `value`.
  Tensor Pad(const std::vector<int64_t>& pairs, double value = 0) const;
  // [begin, end) for each axis.
  Tensor Shrink(const std::vector<int64_t>& pairs) const;
  // [begin, end) of one axis; negative positions count from the end.
  Tensor Slice(int64_t axis, int64_t begin, int64_t end) const;
  // Elements 0, step, 2 step, ... of one axis; `step` is at least 1.
  Tensor Stride(int64_t axis, int64_t step) const;
  Tensor Squeeze(int64_t axis) const;
  Tensor Unsqueeze(int64_t axis) const;
  Tensor Flatten(int64_t from = 1) const;  // axes from.. become one

  // Reductions. An empty list of axes means all of them in Sum() etc. without arguments only.
  Tensor Sum(const Axes& axes, bool keepdim = false) const;
  Tensor Max(const Axes& axes, bool keepdim = false) const;
  Tensor Mean(const Axes& axes, bool keepdim = false) const;
  Tensor Sum() const;
  Tensor Max() const;
  Tensor Mean() const;
  // The first position of the largest element, i32; a NaN counts as largest.
  Tensor ArgMax(int64_t axis, bool keepdim = false) const;
  Tensor Softmax(int64_t axis = -1) const;
  Tensor LogSoftmax(int64_t axis = -1) const;
  // Shifted and scaled to mean 0 and variance 1 over the axes; `epsilon` is added to the variance.
  Tensor Standardize(const Axes& axes, double epsilon) const;

  // Products and windows.
  Tensor MatMul(const Tensor& other) const;  // NumPy's matmul
  // [..., H, W] -> [..., OH, OW, KH, KW] for a kernel of any number of trailing axes.
  Tensor Windows(const std::vector<int64_t>& kernel, const Window& window = {}) const;
  // This [N, C, H, W] with weight [O, C / groups, KH, KW] -> [N, O, OH, OW]; any number of spatial
  // axes.
  Tensor Conv(const Tensor& weight, const Window& window = {}, int64_t groups = 1) const;
  Tensor MaxPool(const std::vector<int64_t>& kernel, const Window& window) const;
  // Padding counts as elements only with `count_pads`.
  Tensor AvgPool(const std::vector<int64_t>& kernel, const Window& window,
                 bool count_pads = true) const;

  // Indices.
  Tensor Gather(const Tensor& index) const;  // rows of axis 0; 0 where out of range
  // This with rows of axis 0 combined with those of `updates` that the index sends there: see
  // SCATTER in docs/ops.md.
  Tensor Scatter(const Tensor& index, const Tensor& updates, ScatterKind kind) const;
  Tensor OneHot(int64_t classes) const;  // integers [...] -> bool [..., classes]
  // Mean over all rows of -log softmax(this)[label]: this [..., classes], labels [...] of integers
  // -> [].
  Tensor CrossEntropy(const Tensor& labels) const;

  Tensor Contiguous() const;
  Tensor Detach() const;

 private:
  Tensor Unary(Op op) const;
  Tensor Reduce(std::string_view name, ReduceKind kind, const Axes& axes, bool keepdim) const;

  Builder* builder_ = nullptr;
  UOp uop_;
};

// The operands broadcast; / rounds down on integers.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
inline Tensor operator+(const Tensor& a, double b) { return a + a.Like(b); }
inline Tensor operator-(const Tensor& a, double b) { return a - a.Like(b); }
inline Tensor operator*(const Tensor& a, double b) { return a * a.Like(b); }
inline Tensor operator/(const Tensor& a, double b) { return a / a.Like(b); }
inline Tensor operator+(double a, const Tensor& b) { return b.Like(a) + b; }
inline Tensor operator-(double a, const Tensor& b) { return b.Like(a) - b; }
inline Tensor operator*(double a, const Tensor& b) { return b.Like(a) * b; }
inline Tensor operator/(double a, const Tensor& b) { return b.Like(a) / b; }
inline Tensor operator-(const Tensor& a) { return a.Neg(); }

// Joins tensors of equal shape but for `axis` (at least one).
Tensor Concat(std::span<const Tensor> parts, int64_t axis);

}  // namespace telegrad
