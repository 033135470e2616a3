// Reductions of Tensor to sums, products, extremes and their positions.
#include "engine/frontend/ops/reduce.h"

#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

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

Tensor Tensor::AllClose(const Tensor& other, double rtol, double atol) const {
  return IsClose(other, rtol, atol).All();
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

}  // namespace telegrad
