// Operators that move elements. Shapes must be known at import, so inputs that hold shapes are read
// on the host.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/checked.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxPadBytes = 8;  // of one number

}  // namespace

// Also of sequences, optionals and strings.
absl::Status IdentityOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(ValueRef value, c.Get(0));
  return c.OutputValue(std::move(value));
}

absl::Status ConstantOp(NodeContext& c) {
  if (c.HasAttribute("value")) {
    TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required("value", AttributeType::kTensor));
    return c.OutputKnown(&*a->t);
  }
  if (c.HasAttribute("value_float")) {
    TG_ASSIGN_OR_RETURN(const float value, c.Float("value_float", 0));
    return c.OutputKnown(HostTensor::Of<float>({}, {value}));
  }
  if (c.HasAttribute("value_int")) {
    TG_ASSIGN_OR_RETURN(const int64_t value, c.Int("value_int", 0));
    return c.OutputKnown(HostTensor::Of<int64_t>({}, {value}));
  }
  if (c.HasAttribute("value_ints")) {
    TG_ASSIGN_OR_RETURN(const std::vector<int64_t> values, c.Ints("value_ints", {}));
    const auto n = static_cast<int64_t>(values.size());
    return c.OutputKnown(HostTensor::Of<int64_t>({n}, values));
  }
  if (c.HasAttribute("value_floats")) {
    TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required("value_floats", AttributeType::kFloats));
    const auto n = static_cast<int64_t>(a->floats.size());
    return c.OutputKnown(HostTensor::Of<float>({n}, a->floats));
  }
  if (c.HasAttribute("value_string")) {
    TG_ASSIGN_OR_RETURN(const std::string_view value, c.String("value_string", ""));
    return c.OutputStrings({{}, {std::string(value)}});
  }
  if (c.HasAttribute("value_strings")) {
    TG_ASSIGN_OR_RETURN(const auto values, c.Strings("value_strings"));
    StringTensor out{{static_cast<int64_t>(values.size())}, {}};
    out.values.assign(values.begin(), values.end());
    return c.OutputStrings(std::move(out));
  }
  if (c.HasAttribute("sparse_value")) {
    TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required("sparse_value", AttributeType::kSparse));
    TG_ASSIGN_OR_RETURN(HostTensor dense, ToDense(*a->sparse));
    return c.OutputKnown(std::move(dense));
  }
  return InvalidArgument("a constant has none of the attributes that give its value");
}

absl::Status ShapeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(int64_t begin, c.Int("start", 0));
  TG_ASSIGN_OR_RETURN(int64_t end, c.Int("end", x.rank()));
  // As a slice: negative positions count from the end, and what lies outside is cut off.
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? std::max(at, -x.rank()) + x.rank() : at, 0, x.rank());
  };
  begin = clamp(begin);
  end = std::max(begin, clamp(end));
  const Dims dims = x.dims();
  SizeList part{DType::kInt64, false, {dims.begin() + begin, dims.begin() + end}};
  if (!part.is_static()) {
    TG_ASSIGN_OR_RETURN(ValueRef out, c.values().FromSizes(std::move(part)));
    return c.OutputValue(std::move(out));
  }
  return c.OutputKnown(
      HostTensor::Of<int64_t>({end - begin}, x.shape().subspan(begin, end - begin)));
}

namespace {

// What -1 stands for: the sizes that both shapes have are left out of either product.
absl::StatusOr<Dim> RestOf(Builder& b, const Dims& from, const Dims& to) {
  std::vector<Dim> left(from.begin(), from.end());
  int64_t known = 1;
  for (const Dim& dim : to) {
    if (dim == Dim(-1)) continue;
    const auto same = std::ranges::find(left, dim);
    if (same != left.end()) {
      left.erase(same);
    } else if (!dim.is_static() || !CheckedMul(known, dim.size(), &known)) {
      return Unimplemented("a reshape from ", ToString(from), " to ", ToString(to),
                           ", whose sizes each run decides, cannot be checked at import");
    }
  }
  Dim have = 1, sizes = 1;
  for (const Dim& dim : left) {
    Dim& product = dim.is_static() ? have : sizes;
    product = MulDims(&b, product, dim);
  }
  if (known == 0 || have.size() % known != 0) {
    if (sizes.is_static()) {
      return InvalidArgument("a reshape from ", ToString(from), " to ", ToString(to));
    }
    return Unimplemented("a reshape from ", ToString(from), " to ", ToString(to),
                         ", whose sizes each run decides, cannot be checked at import");
  }
  return MulDims(&b, sizes, have.size() / known);
}

}  // namespace

absl::Status ReshapeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Dims shape, c.Sizes(1));
  TG_ASSIGN_OR_RETURN(const int64_t allow_zero, c.Int("allowzero", 0));
  const Dims from = x.dims();
  for (size_t i = 0; allow_zero == 0 && i < shape.size(); ++i) {
    if (shape[i] != Dim(0)) continue;
    if (static_cast<int64_t>(i) >= x.rank()) {
      return InvalidArgument("axis ", i, " of the new shape ", ToString(shape), " copies that of ",
                             ToString(x.shape()), ", which has none");
    }
    shape[i] = from[i];
  }
  const auto wild = std::ranges::find(shape, Dim(-1));
  if (wild != shape.end() && !(from.is_static() && shape.is_static())) {
    TG_ASSIGN_OR_RETURN(*wild, RestOf(c.builder(), from, shape));
  }
  return c.Output(x.Reshape(shape));
}

// Always a matrix: the axes before `axis`, the axes from it on.
absl::Status FlattenOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 1));
  int64_t split = axis;  // may be the rank itself
  if (axis != x.rank()) {
    TG_ASSIGN_OR_RETURN(split, ResolveAxis("flatten", axis, x.rank()));
  }
  Axes before(static_cast<size_t>(split)), behind(static_cast<size_t>(x.rank() - split));
  std::iota(before.begin(), before.end(), 0);
  std::iota(behind.begin(), behind.end(), split);
  return c.Output(x.Reshape(Dims{Dim(x.SizeOf(before)), Dim(x.SizeOf(behind))}));
}

absl::Status TransposeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  Axes reversed(x.rank());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  TG_ASSIGN_OR_RETURN(const Axes order, c.Ints("perm", reversed));
  return c.Output(x.Permute(order));
}

absl::Status SqueezeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Axes axes, c.IntsOrInput("axes", 1, 13));
  if (axes.empty()) {
    const Dims dims = x.dims();
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (dims[i] == Dim(1)) axes.push_back(i);
    }
  }
  TG_ASSIGN_OR_RETURN(axes, ResolveAxes("squeeze", axes, x.rank()));
  Tensor out = x;
  for (size_t i = axes.size(); i-- > 0;) out = out.Squeeze(axes[i]);
  return c.Output(out);
}

// The axes are those of the result.
absl::Status UnsqueezeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Axes axes, c.IntsOrInput("axes", 1, 13));
  TG_ASSIGN_OR_RETURN(axes,
                      ResolveAxes("unsqueeze", axes, x.rank() + static_cast<int64_t>(axes.size())));
  Tensor out = x;
  for (const int64_t axis : axes) out = out.Unsqueeze(axis);
  return c.Output(out);
}

// Both broadcast: a dim of 1 in the wanted shape keeps the input's.
absl::Status ExpandOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Dims wanted, c.Sizes(1));
  TG_ASSIGN_OR_RETURN(const Dims shape, Broadcast("expand", x.dims(), wanted));
  return c.Output(x.Expand(shape));
}

absl::Status ConcatOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Attribute* axis, c.Required("axis", AttributeType::kInt));
  std::vector<Tensor> parts;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(const Tensor part, c.Input(i));
    parts.push_back(part);
  }
  return c.Output(Concat(parts, axis->i));
}

namespace {

// Pads of an axis that are longer than what a copy of it gives: the axis repeats, or goes to and
// fro. Those that were added are 0 then.
absl::StatusOr<Tensor> RepeatAxes(NodeContext& c, Tensor x, bool wrap,
                                  std::vector<int64_t>* pairs) {
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    int64_t &before = (*pairs)[2 * axis], &after = (*pairs)[2 * axis + 1];
    const int64_t n = x.dim(axis), room = wrap ? n : n - 1;
    if (std::max(before, after) <= room || n == 0) continue;
    if (std::max(before, after) > kMaxWindowNumber || std::min(before, after) < -n) {
      return InvalidArgument("axis ", axis, " of ", n, " has the pads ", before, " and ", after);
    }
    const int64_t period = wrap ? n : std::max<int64_t>(1, 2 * (n - 1));
    std::vector<int64_t> from;
    for (int64_t i = -before; i < n + after; ++i) {
      const int64_t at = (i % period + period) % period;
      from.push_back(at < n ? at : period - at);
    }
    const auto size = static_cast<int64_t>(from.size());
    TG_ASSIGN_OR_RETURN(const Tensor index, c.Weight(HostTensor::Of<int64_t>({size}, from)));
    x = x.IndexSelect(axis, index.Reshape({size}));
    before = after = 0;
  }
  return x;
}

}  // namespace

absl::Status PadOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  constexpr struct {
    std::string_view name;
    PadMode mode;
  } kModes[] = {{"constant", PadMode::kConstant},
                {"reflect", PadMode::kReflect},
                {"edge", PadMode::kReplicate},
                {"wrap", PadMode::kCircular}};
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("mode", "constant"));
  const auto* mode = std::ranges::find(kModes, name, [](const auto& row) { return row.name; });
  if (mode == std::end(kModes)) return InvalidArgument("'mode' is '", name, "'");
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                      c.IntsOrInput(c.opset() < 2 ? "paddings" : "pads", 1, 11));
  double value = 0;
  Tensor run_time;  // the value where it is only known then
  if (c.opset() < 11) {
    TG_ASSIGN_OR_RETURN(value, c.Float("value", 0));
  } else if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const HostTensor* known, c.Known(2, kMaxPadBytes));
    if (known != nullptr && IsFloat(x.dtype()) && !IsStorage(x.dtype())) {
      TG_ASSIGN_OR_RETURN(value, c.Number(2));
    } else {
      TG_ASSIGN_OR_RETURN(run_time, c.Input(2));
      if (run_time.size() != 1)
        return InvalidArgument("the value has ", run_time.size(), " elements");
      run_time = run_time.Reshape(Shape{}).Cast(x.dtype());
    }
  }
  Axes axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(axes, c.Numbers(3));
  }
  TG_RETURN_IF_ERROR(ResolveAxes("pad", axes, x.rank()).status());  // none twice
  if (pads.size() != 2 * axes.size()) {
    return InvalidArgument(pads.size(), " pads, expected ", 2 * axes.size());
  }
  std::vector<int64_t> pairs(static_cast<size_t>(2 * x.rank()), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("pad", axes[i], x.rank()));
    pairs[2 * axis] = pads[i];
    pairs[2 * axis + 1] = pads[axes.size() + i];
  }
  if (name == "wrap" || name == "reflect") {
    TG_ASSIGN_OR_RETURN(x, RepeatAxes(c, x, name == "wrap", &pairs));
  }
  const Tensor out = x.Pad(pairs, mode->mode, value);
  if (!run_time.valid() || mode->mode != PadMode::kConstant) return c.Output(out);
  const Tensor inside = c.builder().Full(DType::kBool, x.dims(), 1).Pad(pairs, mode->mode);
  return c.Output(inside.Where(out, run_time));
}

}  // namespace telegrad::onnx
