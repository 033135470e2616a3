// Reductions of Tensor, and what is made of them.
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/shapes.h"

namespace telegrad {
namespace {

Axes AllAxes(const Tensor& t) {
  Axes axes(t.rank());
  for (int64_t i = 0; i < t.rank(); ++i) axes[i] = i;
  return axes;
}

// The integer type that counts 0..n-1.
DType IndexType(int64_t n) {
  return n > std::numeric_limits<int32_t>::max() ? DType::kInt64 : DType::kInt32;
}

}  // namespace

Tensor Tensor::Reduce(std::string_view name, ReduceKind kind, const Axes& axes,
                      bool keepdim) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> over = ResolveAxes(name, axes, rank());
  if (!over.ok()) return builder_->Fail(over.status());
  Shape out;
  for (int64_t i = 0, next = 0; i < rank(); ++i) {
    const bool folded = next < static_cast<int64_t>(over->size()) && (*over)[next] == i;
    next += folded;
    if (!folded) out.push_back(shape()[i]);
  }
  Tensor result = *this;
  if (!over->empty()) {
    Axes arg = {static_cast<int64_t>(kind)};
    arg.insert(arg.end(), over->begin(), over->end());
    result = builder_->Make(Op::kReduce, DType::kVoid, {*this}, arg);
  }
  return keepdim ? result : result.Reshape(out);
}

Tensor Tensor::Sum(const Axes& axes, bool keepdim) const {
  const Tensor x = IsBool(dtype()) ? Cast(DType::kInt32) : *this;  // a count
  return x.Reduce("sum", ReduceKind::kAdd, axes, keepdim);
}

Tensor Tensor::Max(const Axes& axes, bool keepdim) const {
  return Reduce("max", ReduceKind::kMax, axes, keepdim);
}

Tensor Tensor::Mean(const Axes& axes, bool keepdim) const {
  if (!valid()) return *this;
  if (!IsFloat(dtype())) {
    return builder_->Fail(InvalidArgument("mean: element type ", Name(dtype()), " is not a float"));
  }
  const Tensor sum = Sum(axes, keepdim);
  if (!sum.valid()) return sum;
  // Of nothing it is 0 / 0, NaN, as in NumPy.
  const double n = sum.size() == 0 ? 1.0 : static_cast<double>(size()) / sum.size();
  return n == 0 ? sum / 0.0 : sum * (1.0 / n);
}

Tensor Tensor::Sum() const { return Sum(AllAxes(*this)); }
Tensor Tensor::Max() const { return Max(AllAxes(*this)); }
Tensor Tensor::Mean() const { return Mean(AllAxes(*this)); }

// Among the positions of the maximum the first one has the largest n - position.
Tensor Tensor::ArgMax(int64_t axis, bool keepdim) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("argmax", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const int64_t n = shape()[*at];
  if (n == 0 || n > std::numeric_limits<int32_t>::max()) {
    return builder_->Fail(InvalidArgument("argmax: axis ", *at, " of ", ToString(shape()), " has ",
                                          n, " elements, expected 1 to 2^31 - 1"));
  }
  Tensor hit = Eq(Max({*at}, true));
  if (IsFloat(dtype())) hit = hit.Or(Ne(*this));
  Shape column(rank(), 1);
  column[*at] = n;
  const int64_t last = n;
  const Tensor from_end = last - builder_->Iota(DType::kInt32, n).Reshape(column);
  return last - hit.Where(from_end, from_end.Like(0)).Max({*at}, keepdim);
}

// The shift by the maximum cancels in value and gradient, so no gradient flows through it.
Tensor Tensor::Softmax(int64_t axis) const {
  const Tensor e = (*this - Max({axis}, true).Detach()).Exp();
  return e / e.Sum({axis}, true);
}

Tensor Tensor::LogSoftmax(int64_t axis) const {
  const Tensor shifted = *this - Max({axis}, true).Detach();
  return shifted - shifted.Exp().Sum({axis}, true).Log();
}

Tensor Tensor::Standardize(const Axes& axes, double epsilon) const {
  const Tensor centered = *this - Mean(axes, true);
  return centered * ((centered * centered).Mean(axes, true) + epsilon).Sqrt().Reciprocal();
}

Tensor Tensor::Gather(const Tensor& index) const {
  return builder_ == nullptr ? Tensor() : builder_->Make(Op::kGather, DType::kVoid, {*this, index});
}

Tensor Tensor::Scatter(const Tensor& index, const Tensor& updates, ScatterKind kind) const {
  if (builder_ == nullptr) return {};
  const int64_t arg[] = {static_cast<int64_t>(kind)};
  return builder_->Make(Op::kScatter, DType::kVoid, {*this, index, updates}, arg);
}

Tensor Tensor::OneHot(int64_t classes) const {
  if (!valid()) return *this;
  if (!IsInt(dtype())) {
    return builder_->Fail(
        InvalidArgument("one_hot: element type ", Name(dtype()), " is not an integer type"));
  }
  // Wide enough for both the labels and the classes: a wrapped number must not match.
  const DType type = ByteSize(dtype()) == 8 ? DType::kInt64 : IndexType(classes);
  return Cast(type).Unsqueeze(-1).Eq(builder_->Iota(type, classes));
}

Tensor Tensor::CrossEntropy(const Tensor& labels) const {
  if (!valid() || !labels.valid()) {
    return builder_ == nullptr ? Tensor()
                               : builder_->Fail(InvalidArgument("cross_entropy: an empty tensor"));
  }
  if (rank() == 0 || !std::ranges::equal(shape().first(rank() - 1), labels.shape())) {
    return builder_->Fail(InvalidArgument("cross_entropy: logits ", ToString(shape()),
                                          " need labels of all axes but the last, got ",
                                          ToString(labels.shape())));
  }
  const Tensor picked = labels.OneHot(shape().back()).Where(LogSoftmax(), Like(0));
  return picked.Sum() * (-1.0 / static_cast<double>(std::max<int64_t>(labels.size(), 1)));
}

}  // namespace telegrad
