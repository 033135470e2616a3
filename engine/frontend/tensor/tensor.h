// Tensor: a lazy value. A handle on a node of a Builder's graph; every method adds nodes and
// returns the handle of the result. Nothing is computed here.
//
// Shapes broadcast as NumPy's do, negative axes count from the end, and every axis may have size 0.
// Operands of different element types are promoted as promotion.h says; a plain number takes the
// tensor's type where that can hold it. Functions that need floats (exp, mean, softmax, ...) turn
// integers and bools into f32 first. Errors are sticky in the builder, name the operation, the
// shapes and the axis, and are there (Builder::status) as soon as the call has returned; the result
// is then an invalid tensor, which every further operation passes on. docs/tensor.md lists the
// methods beside tinygrad's, PyTorch's and NumPy's names.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/frontend/tensor/dims.h"
#include "engine/ir/graph.h"

namespace telegrad {

class Builder;
class Index;    // index.h
class Operand;  // below

using Axes = std::vector<int64_t>;

// Window geometry of a convolution or pool over the last axes. Each list holds one number for each
// spatial axis or one number for all; `pads` holds (before, after) for each spatial axis, or one
// number, or nothing.
struct Window {
  std::vector<int64_t> stride = {1};
  std::vector<int64_t> dilation = {1};
  std::vector<int64_t> pads = {};
  bool ceil_mode = false;  // pools: windows that begin inside and end outside count too
};

enum class Reduction { kMean, kSum, kNone };  // of a loss over its elements
enum class PadMode { kConstant, kReflect, kReplicate, kCircular };
enum class Interpolation { kNearest, kNearestExact, kLinear };
enum class Rounding { kNone, kTrunc, kFloor };  // of a quotient

class Tensor {
 public:
  Tensor() : builder_(nullptr) {}
  Tensor(Builder* builder, UOp uop) : builder_(builder), uop_(uop) {}

  bool valid() const { return uop_.valid(); }
  Builder* builder() const { return builder_; }
  UOp uop() const { return uop_; }
  // Of an invalid tensor: kVoid, [].
  DType dtype() const { return valid() ? uop_.dtype() : DType::kVoid; }
  // Upper bounds where an axis is symbolic.
  ShapeView shape() const { return valid() ? uop_.shape() : ShapeView{}; }
  Dims dims() const { return valid() ? Dims::Of(uop_) : Dims(); }
  int64_t rank() const { return static_cast<int64_t>(shape().size()); }
  // The size of an axis; 0 if there is no such axis.
  int64_t dim(int64_t axis) const;
  int64_t size() const { return NumElements(shape()); }
  // The size of an axis as a scalar i64, also where it is symbolic; the product of several.
  Tensor SizeOf(const Axes& axes) const;

  // --- Creation like this one: same shape and, unless said, element type ---
  Tensor Like(double value) const;  // a scalar of this element type
  Tensor FullLike(const Operand& value, DType dtype = DType::kVoid) const;
  Tensor ZerosLike(DType dtype = DType::kVoid) const;
  Tensor OnesLike(DType dtype = DType::kVoid) const;

  // --- Elementwise, one operand. Errors of the functions, in units of the last place: sqrt, rsqrt
  // and reciprocal 1; exp2, log2, sin 2; exp, sinh, cosh 2 + |x|; cos see trigonometry.cc; the
  // others
  // 8. Floats under 32 bits are computed in f32 and rounded once ---
  Tensor Neg() const;   // of bool: not
  Tensor Abs() const;   // its gradient at 0 is 0
  Tensor Sign() const;  // NaN where NaN
  Tensor Square() const;
  Tensor Sqrt() const;
  Tensor Rsqrt() const;
  Tensor Reciprocal() const;
  Tensor Exp() const;
  Tensor Exp2() const;
  Tensor Expm1() const;
  Tensor Log() const;
  Tensor Log2() const;
  Tensor Log10() const;
  Tensor Log1p() const;
  Tensor Sin() const;
  Tensor Cos() const;
  Tensor Tan() const;
  Tensor Asin() const;
  Tensor Acos() const;
  Tensor Atan() const;
  Tensor Sinh() const;
  Tensor Cosh() const;
  Tensor Tanh() const;
  Tensor Asinh() const;
  Tensor Acosh() const;
  Tensor Atanh() const;
  Tensor Erf() const;
  Tensor Floor() const;
  Tensor Ceil() const;
  Tensor Trunc() const;
  Tensor Round() const;  // halves to even
  Tensor IsNan() const;
  Tensor IsInf(bool positive = true, bool negative = true) const;
  Tensor IsFinite() const;
  Tensor LogicalNot() const;
  Tensor BitwiseNot() const;
  Tensor Not() const { return LogicalNot(); }
  Tensor Cast(DType dtype) const;
  Tensor Bitcast(DType dtype) const;  // where the width changes, the last axis grows or shrinks

  // --- Elementwise, several operands; the operators +, -, *, /, %, &, |, ^, <<, >> are below. Of
  // bool, + is or, * is and, - an error, and the integer divisions, %, <<, >> and pow make i8 of
  // it, as NumPy has it ---
  Tensor Add(const Operand& other) const;
  Tensor Sub(const Operand& other) const;
  Tensor Mul(const Operand& other) const;
  Tensor Div(const Operand& other, Rounding rounding = Rounding::kNone) const;
  Tensor FloorDiv(const Operand& other) const;  // 0 where an integer divisor is 0
  Tensor TruncDiv(const Operand& other) const;
  Tensor FloorMod(const Operand& divisor) const;  // the sign of the divisor
  // This one's sign (fmod). Either remainder of floats is exact for quotients below 2^36 in f32 and
  // less, 2^52 in f64.
  Tensor TruncMod(const Operand& divisor) const;
  Tensor Pow(const Operand& exponent) const;  // integers wrap; of a negative integer exponent: 0, 1
                                              // or -1
  Tensor Maximum(const Operand& other) const;  // NaN if either is
  Tensor Minimum(const Operand& other) const;
  Tensor Lt(const Operand& other) const;
  Tensor Le(const Operand& other) const;
  Tensor Gt(const Operand& other) const;
  Tensor Ge(const Operand& other) const;
  Tensor Eq(const Operand& other) const;
  Tensor Ne(const Operand& other) const;
  Tensor IsClose(const Operand& other, double rtol = 1e-5, double atol = 1e-8,
                 bool equal_nan = false) const;
  Tensor And(const Operand& other) const;  // bitwise; of bool, logical
  Tensor Or(const Operand& other) const;
  Tensor Xor(const Operand& other) const;
  Tensor LogicalAnd(const Operand& other) const;  // of any type: != 0
  Tensor LogicalOr(const Operand& other) const;
  Tensor LogicalXor(const Operand& other) const;
  Tensor ShiftLeft(const Operand& bits) const;  // 0 where the bits are negative or too many
  Tensor ShiftRight(const Operand& bits) const;
  Tensor CopySign(const Operand& sign) const;
  Tensor LogAddExp(const Operand& other) const;
  Tensor Hypot(const Operand& other) const;
  Tensor Atan2(const Operand& x) const;
  Tensor Lerp(const Operand& end, const Operand& weight) const;  // this + weight (end - this)
  Tensor Clamp(std::optional<double> low, std::optional<double> high) const;
  Tensor Clamp(const Tensor& low, const Tensor& high) const;
  // This (bool) ? yes : no.
  Tensor Where(const Operand& yes, const Operand& no) const;
  Tensor MaskedFill(const Tensor& mask, const Operand& value) const;

  // --- Activations ---
  Tensor Relu() const;
  Tensor Relu6() const;
  Tensor Sigmoid() const;
  Tensor LogSigmoid() const;
  Tensor HardSigmoid(double alpha = 1.0 / 6, double beta = 0.5) const;
  Tensor HardSwish() const;
  Tensor HardTanh(double low = -1, double high = 1) const;
  Tensor LeakyRelu(double slope = 0.01) const;
  Tensor PRelu(const Tensor& slope) const;  // which broadcasts; PyTorch's [C] is a [C, 1, 1] here
  Tensor Elu(double alpha = 1) const;
  Tensor Celu(double alpha = 1) const;
  Tensor Selu() const;
  Tensor Gelu() const;       // x times the normal distribution's probability to be below x
  Tensor GeluTanh() const;   // its approximation by a tanh (Hendrycks and Gimpel 2016)
  Tensor QuickGelu() const;  // x sigmoid(1.702 x)
  Tensor Silu() const;
  Tensor Swish() const { return Silu(); }
  Tensor Softplus(double beta = 1) const;
  Tensor Softsign() const;
  Tensor Mish() const;
  Tensor Glu(int64_t axis = -1) const;

  // --- Movement ---
  Tensor Reshape(const Dims& shape) const;  // one dim may be -1
  Tensor View(const Dims& shape) const { return Reshape(shape); }
  Tensor Expand(const Dims& shape) const;  // NumPy's broadcast_to; -1 keeps an axis
  Tensor Permute(const Axes& axes) const;
  Tensor Transpose(int64_t a = -2, int64_t b = -1) const;
  Tensor T() const;  // all axes reversed
  Tensor MoveAxis(int64_t from, int64_t to) const;
  Tensor Flip(const Axes& axes) const;
  // (before, after) for each axis, filled with `value`.
  Tensor Pad(const std::vector<int64_t>& pairs, double value = 0) const;
  // Negative numbers crop. Other modes than kConstant read `value` nowhere.
  Tensor Pad(const std::vector<int64_t>& pairs, PadMode mode, double value = 0) const;
  Tensor PadTo(const Shape& shape, double value = 0) const;  // at the ends
  // [begin, end) for each axis.
  Tensor Shrink(const std::vector<int64_t>& pairs) const;
  Tensor ShrinkTo(const Shape& shape) const;
  // [begin, end) of one axis; negative positions count from the end.
  Tensor Slice(int64_t axis, int64_t begin, int64_t end) const;
  // `length` elements from `begin` on, either of which may be symbolic; zeros where a symbolic part
  // leaves the axis.
  Tensor Narrow(int64_t axis, const Dim& begin, const Dim& length) const;
  // Elements 0, step, 2 step, ... of one axis; `step` is at least 1.
  Tensor Stride(int64_t axis, int64_t step) const;
  Tensor Squeeze(int64_t axis) const;
  Tensor Squeeze() const;  // all axes of size 1
  Tensor Unsqueeze(int64_t axis) const;
  Tensor Flatten(int64_t from = 0, int64_t to = -1) const;  // axes from..to become one
  Tensor Unflatten(int64_t axis, const Shape& sizes) const;
  // einops' rearrange, as "b (h w) c -> b c h w", with the sizes that it can't tell.
  Tensor Rearrange(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, int64_t>> sizes = {}) const;
  std::vector<Tensor> Split(const std::vector<int64_t>& sizes, int64_t axis = 0) const;
  std::vector<Tensor> Split(int64_t size, int64_t axis = 0) const;  // the last may be smaller
  std::vector<Tensor> Chunk(int64_t chunks, int64_t axis = 0) const;
  std::vector<Tensor> Unbind(int64_t axis = 0) const;
  Tensor Repeat(const Dims& times) const;  // NumPy's tile
  Tensor RepeatInterleave(int64_t times, int64_t axis) const;
  Tensor Roll(const std::vector<int64_t>& shifts, const Axes& axes) const;
  Tensor Diag(int64_t offset = 0) const;  // of a vector the matrix, of a matrix the vector
  Tensor Diagonal(int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1) const;
  Tensor Unfold(int64_t axis, int64_t size, int64_t step) const;  // windows; a last axis of `size`
  Tensor Tril(int64_t diagonal = 0) const;
  Tensor Triu(int64_t diagonal = 0) const;

  // --- Indexing ---
  // NumPy's x[...]; see index.h.
  Tensor At(const std::vector<Index>& indices) const;
  // This with x[indices] = value, in new memory. Where positions repeat, the last one stays.
  Tensor Set(const std::vector<Index>& indices, const Operand& value) const;
  Tensor Gather(const Tensor& index) const;  // rows of axis 0; 0 where out of range
  // This with rows of axis 0 combined with those of `updates` that the index sends there: see
  // SCATTER in docs/ops.md.
  Tensor Scatter(const Tensor& index, const Tensor& updates, ScatterKind kind) const;
  Tensor IndexSelect(int64_t axis, const Tensor& index) const;  // NumPy's take
  Tensor TakeAlong(int64_t axis, const Tensor& index) const;    // PyTorch's gather
  // out[.., index[i], ..] = src[i] along one axis (PyTorch's scatter and scatter_reduce); kind kAdd
  // etc. include this tensor's own elements.
  Tensor PutAlong(int64_t axis, const Tensor& index, const Operand& src,
                  ScatterKind kind = ScatterKind::kSet) const;
  Tensor GatherNd(const Tensor& index, int64_t batch_axes = 0) const;
  Tensor ScatterNd(const Tensor& index, const Tensor& updates,
                   ScatterKind kind = ScatterKind::kSet) const;
  Tensor OneHot(int64_t classes) const;  // integers [...] -> bool [..., classes]
  // The elements where the mask holds, in order: the first `size` of them, then `fill`. The count
  // of a lazy value is not known, so that the caller says how many there is room for.
  Tensor MaskedSelect(const Tensor& mask, int64_t size, double fill = 0) const;
  Tensor Nonzero(int64_t size, int64_t fill = -1) const;  // [size, rank] i64
  Tensor CountNonzero() const;

  // --- Reductions. Sum() etc. without arguments fold all axes, an empty list none. Floats of less
  // than 32 bits are folded in f32. Sums and products of integers have at least 32 bits, as
  // tinygrad's; NumPy's have 64. The largest of no elements is an error ---
  Tensor Sum(const Axes& axes, bool keepdim = false) const;
  Tensor Prod(const Axes& axes, bool keepdim = false) const;
  Tensor Max(const Axes& axes, bool keepdim = false) const;
  Tensor Min(const Axes& axes, bool keepdim = false) const;
  Tensor Mean(const Axes& axes, bool keepdim = false) const;
  // `correction` is taken off the count that the sum of squares is divided by.
  Tensor Var(const Axes& axes, double correction = 1, bool keepdim = false) const;
  Tensor Std(const Axes& axes, double correction = 1, bool keepdim = false) const;
  std::pair<Tensor, Tensor> VarMean(const Axes& axes, double correction = 1,
                                    bool keepdim = false) const;
  std::pair<Tensor, Tensor> StdMean(const Axes& axes, double correction = 1,
                                    bool keepdim = false) const;
  Tensor Any(const Axes& axes, bool keepdim = false) const;
  Tensor All(const Axes& axes, bool keepdim = false) const;
  Tensor LogSumExp(const Axes& axes, bool keepdim = false) const;
  // (sum |x|^p)^(1 / p) for any p; 0 counts what is not 0, inf and -inf are the largest and
  // smallest |x|. Its derivative at 0 is 0.
  Tensor Norm(const Axes& axes, double p = 2, bool keepdim = false) const;
  Tensor Sum() const;
  Tensor Prod() const;
  Tensor Max() const;
  Tensor Min() const;
  Tensor Mean() const;
  Tensor Var() const;
  Tensor Std() const;
  Tensor Any() const;
  Tensor All() const;
  // The first position of the largest (smallest) element, i32; a NaN counts as both.
  Tensor ArgMax(int64_t axis, bool keepdim = false) const;
  Tensor ArgMin(int64_t axis, bool keepdim = false) const;
  Tensor ArgMax() const;  // of the flat tensor
  Tensor ArgMin() const;
  Tensor AllClose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8) const;  // bool []
  Tensor Softmax(int64_t axis = -1) const;
  Tensor LogSoftmax(int64_t axis = -1) const;
  Tensor Softmin(int64_t axis = -1) const;
  // Divided by its p-norm along the axis, at least epsilon.
  Tensor Normalize(double p = 2, int64_t axis = 1, double epsilon = 1e-12) const;
  // Shifted and scaled to mean 0 and variance 1 over the axes; `epsilon` is added to the variance.
  Tensor Standardize(const Axes& axes, double epsilon) const;

  // --- Scans and orders along one axis ---
  Tensor CumSum(int64_t axis) const;
  Tensor CumProd(int64_t axis) const;
  // Values, and the positions (i32) of the first of equals; a NaN stays.
  std::pair<Tensor, Tensor> CumMax(int64_t axis) const;
  std::pair<Tensor, Tensor> CumMin(int64_t axis) const;
  Tensor LogCumSumExp(int64_t axis) const;
  // Values and positions (i32); stable; NaN is larger than all.
  std::pair<Tensor, Tensor> Sort(int64_t axis = -1, bool descending = false) const;
  Tensor ArgSort(int64_t axis = -1, bool descending = false) const;
  std::pair<Tensor, Tensor> TopK(int64_t k, int64_t axis = -1, bool largest = true) const;

  // --- Products, windows, layers. Sums of products of f16, bf16 and f8 are made in f32 and rounded
  // once; of bool they say whether any product holds; integers wrap ---
  Tensor Dot(const Tensor& other) const;                               // NumPy's dot
  Tensor MatMul(const Tensor& other) const;                            // NumPy's matmul
  Tensor Linear(const Tensor& weight, const Tensor& bias = {}) const;  // weight [out, in]
  // [..., H, W] -> [..., OH, OW, KH, KW] for a kernel of any number of trailing axes.
  Tensor Windows(const std::vector<int64_t>& kernel, const Window& window = {}) const;
  // This [N, C, H, W] with weight [O, C / groups, KH, KW] -> [N, O, OH, OW]; any number of spatial
  // axes.
  Tensor Conv(const Tensor& weight, const Window& window = {}, int64_t groups = 1) const;
  // Its transpose: weight [C, O / groups, KH, KW]; `output_pads`, one number or one for each axis,
  // is added to the ends of the result and less than the stride or the dilation.
  Tensor ConvTranspose(const Tensor& weight, const Window& window = {}, int64_t groups = 1,
                       const std::vector<int64_t>& output_pads = {}) const;
  Tensor MaxPool(const std::vector<int64_t>& kernel, const Window& window) const;
  // Also the flat positions within a channel's plane, i32; the first of equals.
  std::pair<Tensor, Tensor> MaxPoolIndices(const std::vector<int64_t>& kernel,
                                           const Window& window) const;
  // Padding counts as elements only with `count_pads`; what ceil_mode adds behind it never does.
  Tensor AvgPool(const std::vector<int64_t>& kernel, const Window& window,
                 bool count_pads = true) const;
  // The p-norm of each window; its derivative where that is 0 is 0.
  Tensor LpPool(const std::vector<int64_t>& kernel, const Window& window, double p = 2) const;
  // Zeros [..., spatial...] but for these elements at the positions that MaxPoolIndices gives;
  // where one repeats, the last element stays.
  Tensor MaxUnpool(const Tensor& indices, const Shape& spatial) const;
  // The last axes resampled to `spatial` sizes, as PyTorch's interpolate, at exact positions.
  Tensor Interpolate(const Shape& spatial, Interpolation mode = Interpolation::kLinear,
                     bool align_corners = false) const;
  // (this - mean) * rsqrt(variance + epsilon) * weight + bias, each of one element a channel, axis
  // 1; weight and bias may be empty.
  Tensor BatchNorm(const Tensor& mean, const Tensor& variance, const Tensor& weight,
                   const Tensor& bias, double epsilon = 1e-5) const;
  Tensor LayerNorm(const Axes& axes = {-1}, double epsilon = 1e-5) const;
  Tensor GroupNorm(int64_t groups, double epsilon = 1e-5) const;  // channels are axis 1
  Tensor RmsNorm(int64_t axis = -1, double epsilon = 1e-6) const;
  // This [..., L, D] as queries with keys [..., S, D] and values [..., S, E] -> [..., L, E]. A bool
  // mask says what may be seen, any other one is added; `causal` shows query i the keys up to i. A
  // query that sees nothing, its row of the mask false or -inf throughout, gives 0, not NaN.
  // `scale` is 1 / sqrt(D) unless given. Heads of keys may be fewer by a whole factor (grouped
  // queries) with `grouped`.
  Tensor ScaledDotProductAttention(const Tensor& key, const Tensor& value, const Tensor& mask = {},
                                   bool causal = false, std::optional<double> scale = {},
                                   bool grouped = false) const;
  // Rotary position embedding of the last axis, halves rotated against each other, by angles
  // cos, sin [..., length, D / 2] (Su et al. 2021); `interleaved` pairs neighbours.
  Tensor Rope(const Tensor& cos, const Tensor& sin, bool interleaved = false) const;

  // --- Linear algebra of the last two axes. The eliminations have steps for each column, of which
  // there may be 128; 64 of Svd ---
  std::pair<Tensor, Tensor> Qr() const;  // reduced; R's diagonal has any sign
  // U [m, k], S [k] falling, V^T [k, n]; columns of U are 0 where S is. No gradient flows through
  // it.
  std::tuple<Tensor, Tensor, Tensor> Svd() const;
  // `steps` times X = c0 X + c1 (X X^T) X + c2 (X X^T)^2 X + ..., of X divided by its norm.
  Tensor NewtonSchulz(int64_t steps, const std::vector<double>& coefficients,
                      double epsilon = 1e-7) const;
  Tensor Cholesky() const;  // of the lower triangle; NaN where it is not positive definite
  Tensor Inverse() const;   // not finite where singular
  Tensor Determinant() const;
  Tensor Trace() const;
  Tensor Outer(const Tensor& other) const;  // of the flat tensors, as NumPy's
  Tensor Cross(const Tensor& other, int64_t axis = -1) const;

  // --- Losses ---
  // -log softmax(this)[label]: this [..., classes], labels [...] of integers.
  Tensor CrossEntropy(const Tensor& labels) const;  // the mean
  // PyTorch's: classes on axis 1 (0 without a batch); labels of integers, or probabilities of this
  // shape.
  Tensor CrossEntropy(const Tensor& labels, Reduction reduction, double label_smoothing = 0,
                      std::optional<int64_t> ignore_index = {}, const Tensor& weight = {}) const;
  // Classes on the last axis.
  Tensor SparseCategoricalCrossEntropy(const Tensor& labels, Reduction reduction = Reduction::kMean,
                                       double label_smoothing = 0, int64_t ignore_index = -1) const;
  Tensor NllLoss(const Tensor& labels, Reduction reduction = Reduction::kMean,
                 std::optional<int64_t> ignore_index = {}, const Tensor& weight = {}) const;
  Tensor BinaryCrossEntropy(const Tensor& labels, Reduction reduction = Reduction::kMean) const;
  Tensor BinaryCrossEntropyLogits(const Tensor& labels, Reduction reduction = Reduction::kMean,
                                  const Tensor& positive_weight = {}) const;
  Tensor MseLoss(const Tensor& target, Reduction reduction = Reduction::kMean) const;
  Tensor L1Loss(const Tensor& target, Reduction reduction = Reduction::kMean) const;
  Tensor SmoothL1Loss(const Tensor& target, Reduction reduction = Reduction::kMean,
                      double beta = 1) const;
  Tensor HuberLoss(const Tensor& target, Reduction reduction = Reduction::kMean,
                   double delta = 1) const;
  Tensor KlDiv(const Tensor& target, Reduction reduction = Reduction::kMean) const;  // this: logs

  // --- Graph and devices ---
  Tensor Contiguous() const;
  Tensor Detach() const;
  Tensor To(int64_t device) const;  // a number that the caller of the plan binds
  // One part on each device along `axis`, or without one a whole copy on each. The size must be a
  // multiple of the number of devices.
  Tensor Shard(const std::vector<int64_t>& devices, std::optional<int64_t> axis = {}) const;
  Tensor ShardLike(const Tensor& other) const;

 private:
  Tensor Unary(Op op) const;
  Tensor Reduce(std::string_view name, ReduceKind kind, const Axes& axes, bool keepdim) const;
  Tensor Extreme(std::string_view name, const Axes& axes, bool keepdim) const;
  Tensor FirstOfLargest(std::string_view name, int64_t axis, bool keepdim) const;
  std::pair<Tensor, Tensor> CumExtreme(std::string_view name, int64_t axis, bool largest) const;
  Tensor Order(std::string_view name, int64_t axis, bool descending, int64_t keep = -1) const;

  Builder* builder_;
  UOp uop_;
};

// A tensor, or a number: a bool, an integer or a float.
class Operand {
 public:
  enum class Kind : uint8_t { kTensor, kBool, kInt, kFloat };
  Operand(const Tensor& tensor) : kind_(Kind::kTensor), tensor_(tensor) {}  // NOLINT
  template <typename T>
    requires std::integral<T> || std::floating_point<T>
  Operand(T value)  // NOLINT
      : kind_(std::same_as<T, bool>    ? Kind::kBool
              : std::floating_point<T> ? Kind::kFloat
                                       : Kind::kInt),
        int_(static_cast<int64_t>(std::floating_point<T> ? 0 : value)),
        float_(static_cast<double>(value)) {}

  Kind kind() const { return kind_; }
  bool is_tensor() const { return kind_ == Kind::kTensor; }
  const Tensor& tensor() const { return tensor_; }  // invalid of a number
  int64_t int_value() const { return int_; }
  double float_value() const { return float_; }

 private:
  Kind kind_;
  Tensor tensor_;
  int64_t int_ = 0;
  double float_ = 0;
};

inline Tensor operator-(const Tensor& a) { return a.Neg(); }
inline Tensor operator~(const Tensor& a) { return a.BitwiseNot(); }
Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
Tensor operator/(const Operand& a, const Operand& b);  // f32 of integers, as tinygrad's
Tensor operator%(const Operand& a, const Operand& b);  // FloorMod
Tensor operator&(const Operand& a, const Operand& b);
Tensor operator|(const Operand& a, const Operand& b);
Tensor operator^(const Operand& a, const Operand& b);
Tensor operator<<(const Operand& a, const Operand& b);
Tensor operator>>(const Operand& a, const Operand& b);

// Joins tensors of equal shape but for `axis` (at least one).
Tensor Concat(std::span<const Tensor> parts, int64_t axis);
// Joins tensors of equal shape along a new axis.
Tensor Stack(std::span<const Tensor> parts, int64_t axis = 0);
// NumPy's meshgrid of vectors; `xy` swaps the first two axes of the results.
std::vector<Tensor> MeshGrid(std::span<const Tensor> parts, bool xy = false);
// "ij,jk->ik" over any number of operands; an ellipsis stands for axes that broadcast; without "->"
// the letters that appear once, in alphabetical order.
Tensor Einsum(std::string_view formula, std::span<const Tensor> operands);

}  // namespace telegrad
