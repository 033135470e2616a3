// Reductions of Tensor to sums, products, extremes and their positions.
#include "engine/frontend/reduce.h"

#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/shapes.h"

namespace telegrad {
namespace {

// The integer type that counts 0..n-1.
DType IndexType(int64_t n) {
  return n > std::numeric_limits<int32_t>::max() ? DType::kInt64 : DType::kInt32;
}

}  // namespace

Axes AllAxes(const Tensor& t) {
  Axes axes(t.rank());
  for (int64_t i = 0; i < t.rank(); ++i) axes[i] = i;
  return axes;
}

DType SumType(DType type) {
  if (IsFloat(type)) return type;
  return PromoteTypes(type, IsUnsigned(type) ? DType::kUInt32 : DType::kInt32);
}

Tensor Complement(const Tensor& x) {
  return IsBool(x.dtype()) ? x.LogicalNot() : x.Xor(x.Like(-1));
}

Tensor Tensor::Reduce(std::string_view name, ReduceKind kind, const Axes& axes,
                      bool keepdim) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> over = ResolveAxes(name, axes, rank());
  if (!over.ok()) return builder_->Fail(over.status());
  const Dims from = dims();
  Dims out;
  for (int64_t i = 0, next = 0; i < rank(); ++i) {
    const bool folded = next < static_cast<int64_t>(over->size()) && (*over)[next] == i;
    next += folded;
    if (!folded) out.push_back(from[i]);
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
  return Cast(SumType(dtype())).Reduce("sum", ReduceKind::kAdd, axes, keepdim);
}

Tensor Tensor::Prod(const Axes& axes, bool keepdim) const {
  return Cast(SumType(dtype())).Reduce("prod", ReduceKind::kMul, axes, keepdim);
}

// As in NumPy the extreme of no elements is an error, unless there is no result to have it.
Tensor Tensor::Extreme(std::string_view name, const Axes& axes, bool keepdim) const {
  if (!valid()) return *this;
  const Tensor x = IsBool(dtype()) ? Cast(DType::kUInt8) : *this;
  const Tensor out = x.Reduce(name, ReduceKind::kMax, axes, keepdim);
  if (out.valid() && size() == 0 && out.size() != 0) {
    return builder_->Fail(InvalidArgument(name, ": axes ", ToString(axes), " of ", ToString(dims()),
                                          " have no elements, of which none is the largest"));
  }
  return out.Cast(dtype());
}

Tensor Tensor::Max(const Axes& axes, bool keepdim) const { return Extreme("max", axes, keepdim); }

Tensor Tensor::Min(const Axes& axes, bool keepdim) const {
  if (!valid()) return *this;
  if (IsFloat(dtype())) return -(-*this).Extreme("min", axes, keepdim);
  const Tensor largest = Complement(*this).Extreme("min", axes, keepdim);
  return largest.valid() ? Complement(largest) : largest;
}

Tensor Tensor::Any(const Axes& axes, bool keepdim) const {
  return Cast(DType::kBool)
      .Cast(DType::kUInt8)
      .Reduce("any", ReduceKind::kMax, axes, keepdim)
      .Cast(DType::kBool);
}

Tensor Tensor::All(const Axes& axes, bool keepdim) const {
  const Tensor some_not =
      LogicalNot().Cast(DType::kUInt8).Reduce("all", ReduceKind::kMax, axes, keepdim);
  return some_not.valid() ? some_not.LogicalNot() : some_not;
}

Tensor Tensor::Sum() const { return Sum(AllAxes(*this)); }
Tensor Tensor::Prod() const { return Prod(AllAxes(*this)); }
Tensor Tensor::Max() const { return Max(AllAxes(*this)); }
Tensor Tensor::Min() const { return Min(AllAxes(*this)); }
Tensor Tensor::Any() const { return Any(AllAxes(*this)); }
Tensor Tensor::All() const { return All(AllAxes(*this)); }

// Among the positions of the maximum the first one has the largest n - position.
Tensor Tensor::FirstOfLargest(std::string_view name, int64_t axis, bool keepdim) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis(name, axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const int64_t n = shape()[*at];
  if (n == 0 || n > std::numeric_limits<int32_t>::max()) {
    return builder_->Fail(InvalidArgument(name, ": axis ", *at, " of ", ToString(shape()), " has ",
                                          n, " elements, expected 1 to 2^31 - 1"));
  }
  const Tensor x = IsBool(dtype()) ? Cast(DType::kUInt8) : *this;
  Tensor hit = x.Eq(x.Reduce(name, ReduceKind::kMax, {*at}, true));
  if (IsFloat(dtype())) hit = hit.Or(Ne(*this));
  Dims column(rank(), Dim(1));
  column[*at] = dims()[*at];
  const Tensor from_end = n - builder_->Iota(DType::kInt32, column[*at]).Reshape(column);
  return n - hit.Where(from_end, from_end.Like(0)).Reduce(name, ReduceKind::kMax, {*at}, keepdim);
}

Tensor Tensor::ArgMax(int64_t axis, bool keepdim) const {
  return FirstOfLargest("argmax", axis, keepdim);
}

Tensor Tensor::ArgMin(int64_t axis, bool keepdim) const {
  if (!valid()) return *this;
  const Tensor reversed = IsFloat(dtype()) ? -*this : Complement(*this);
  return reversed.FirstOfLargest("argmin", axis, keepdim);
}

Tensor Tensor::ArgMax() const { return Flatten().ArgMax(0); }
Tensor Tensor::ArgMin() const { return Flatten().ArgMin(0); }

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
