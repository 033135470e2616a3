// Operators that make values from a shape, a place or numbers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxKnown = 1024;  // elements that stay known on the host as well

// A value of an operator's one-element tensor attribute.
absl::StatusOr<HostTensor> ValueOr(NodeContext& c, std::string_view name, HostTensor otherwise) {
  if (!c.HasAttribute(name)) return otherwise;
  TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required(name, AttributeType::kTensor));
  TG_ASSIGN_OR_RETURN(HostTensor value, ToHostTensor(*a->t));
  if (NumElements(value.shape) != 1) {
    return InvalidArgument("'", name, "' has the shape ", ToString(value.shape),
                           ", expected one element");
  }
  return value;
}

}  // namespace

// Known at import where it is short, since exporters compute shapes with it.
absl::Status ConstantOfShapeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Dims dims, c.Sizes(0));
  TG_ASSIGN_OR_RETURN(const HostTensor value,
                      ValueOr(c, "value", HostTensor::Of<float>({1}, {0.0f})));
  const Shape shape = dims.sizes();
  TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(value.dtype, shape));
  if (shape.size() == 1 && dims.is_static() && shape[0] <= kMaxKnown && !IsFloat(value.dtype)) {
    HostTensor known{value.dtype, shape, {}};
    while (static_cast<int64_t>(known.bytes.size()) < bytes) known.bytes += value.bytes;
    return c.OutputKnown(std::move(known));
  }
  TG_ASSIGN_OR_RETURN(const Tensor one, c.Constant(value));
  return c.Output(one.Expand(dims));
}

namespace {

// start, start + delta, ... before a limit that only the run knows, all integers and the step
// positive.
absl::StatusOr<bool> RangeOfRun(NodeContext& c) {
  Dim number[3] = {0, 0, 0};
  DType dtype = DType::kInt64;
  for (int i = 0; i < 3; ++i) {
    TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(i));
    if (i == 0 && value->sizes == nullptr) {
      TG_ASSIGN_OR_RETURN(const HostTensor* known, c.Known(0, 8));
      if (known == nullptr || !IsInt(known->dtype)) return false;
      dtype = known->dtype;
    } else if (i == 0) {
      dtype = value->sizes->dtype;
    }
    if (i == 1 && value->sizes == nullptr) return false;
    TG_ASSIGN_OR_RETURN(const Dims sizes, c.Sizes(i));
    if (sizes.size() != 1) return InvalidArgument("input ", i, " is not one number");
    number[i] = sizes[0];
  }
  const auto& [start, limit, delta] = number;
  if (!delta.is_static() || delta.size() <= 0) return false;
  Builder& b = c.builder();
  Dim count = MaxDims(&b, SubDims(&b, limit, start), 0);
  if (delta.size() != 1 && !count.is_static()) {
    count = Dim(AsTensor(&b, AddDims(&b, count, delta.size() - 1)).FloorDiv(delta.size()));
  }
  const Tensor out = b.Iota(DType::kInt64, count) * delta.size() + AsTensor(&b, start);
  TG_RETURN_IF_ERROR(c.Output(out.Cast(dtype)));
  return true;
}

}  // namespace

// start, start + delta, ... before limit. Short ones of integers stay known at import.
absl::Status RangeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const bool by_run, RangeOfRun(c));
  if (by_run) return absl::OkStatus();
  double number[3];
  for (int i = 0; i < 3; ++i) {
    TG_ASSIGN_OR_RETURN(number[i], c.Number(i));
  }
  TG_ASSIGN_OR_RETURN(const HostTensor* first, c.Known(0));
  const DType dtype = first->dtype;
  const auto [start, limit, delta] = number;
  if (delta == 0) return InvalidArgument("the step is 0");
  const double n = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(n <= 1e9)) return InvalidArgument("has ", n, " elements");
  const auto size = static_cast<int64_t>(n);
  const DType counter = IsInt(dtype) ? dtype : DType::kInt64;
  Tensor out = c.builder().Iota(counter, size).Cast(dtype);
  if (delta != 1) out = out * out.Like(delta);
  if (start != 0) out = out + out.Like(start);
  if ((dtype != DType::kInt64 && dtype != DType::kInt32) || size > kMaxKnown) return c.Output(out);
  HostTensor known{dtype, {size}, {}};
  for (int64_t i = 0; i < size; ++i) {
    const auto value = static_cast<int64_t>(start + static_cast<double>(i) * delta);
    known.bytes.append(reinterpret_cast<const char*>(&value), ByteSize(dtype));
  }
  return c.OutputBoth(out, std::move(known));
}

// Ones on a diagonal of a matrix of the input's shape.
absl::Status EyeLikeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const DType dtype, TypeAttribute(c, "dtype", x.dtype()));
  TG_ASSIGN_OR_RETURN(const int64_t k, c.Int("k", 0));
  if (x.rank() != 2) {
    return InvalidArgument("the input has shape ", ToString(x.shape()), ", expected a matrix");
  }
  Builder& b = c.builder();
  const Tensor row = b.Iota(DType::kInt64, x.dims()[0]).Unsqueeze(1);
  const Tensor column = b.Iota(DType::kInt64, x.dims()[1]);
  // Not row + k, which may overflow.
  return c.Output((column - row).Eq(k).Cast(dtype));
}

absl::Status SizeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (x.dims().is_static()) return c.OutputKnown(HostTensor::Of<int64_t>({}, {x.size()}));
  SizeList size{DType::kInt64, true, {Dim(x.SizeOf(AllAxes(x.rank())))}};
  TG_ASSIGN_OR_RETURN(ValueRef out, c.values().FromSizes(std::move(size)));
  return c.OutputValue(std::move(out));
}

}  // namespace telegrad::onnx
