// Operators that take parts: Slice, Split, Tile, Trilu.
#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/base/checked.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/run_slice.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

// `at` elements after 0, or, if negative, before `n`, cut off at what lies outside of [low, high].
int64_t Position(int64_t at, int64_t n, int64_t low, int64_t high) {
  if (at < 0) at = at < -n ? -1 : at + n;
  return std::clamp(at, low, high);
}

}  // namespace

// The numbers are attributes before opset 10, inputs from then on.
absl::StatusOr<std::vector<SlicePart>> SliceParts(NodeContext& c, ShapeView shape) {
  TG_ASSIGN_OR_RETURN(const Axes starts, c.IntsOrInput("starts", 1, 10));
  TG_ASSIGN_OR_RETURN(const Axes ends, c.IntsOrInput("ends", 2, 10));
  TG_ASSIGN_OR_RETURN(Axes axes, c.IntsOrInput("axes", 3, 10));
  Axes steps(starts.size(), 1);
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(steps, c.Numbers(4));
  }
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return InvalidArgument(starts.size(), " starts, ", ends.size(), " ends, ", axes.size(),
                           " axes and ", steps.size(), " steps: expected as many of each");
  }
  const auto rank = static_cast<int64_t>(shape.size());
  TG_RETURN_IF_ERROR(ResolveAxes("slice", axes, rank).status());  // none twice
  std::vector<SlicePart> parts;
  for (size_t i = 0; i < starts.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("slice", axes[i], rank));
    const int64_t n = shape[axis], step = steps[i];
    if (step == 0 || step == INT64_MIN)
      return InvalidArgument("the step ", step, " of axis ", axis);
    SlicePart part{axis, 0, 0, step};
    if (step > 0) {
      part.begin = Position(starts[i], n, 0, n);
      part.end = std::max(part.begin, Position(ends[i], n, 0, n));
    } else if (n > 0) {  // from `start`, which is clamped to an element, down to before `end`
      part.begin = Position(ends[i], n, -1, n - 1) + 1;
      part.end = std::max(part.begin, Position(starts[i], n, 0, n - 1) + 1);
    }
    parts.push_back(part);
  }
  return parts;
}

absl::Status SliceOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const bool by_run, SliceDecidedByRun(c, x));
  if (by_run) return SliceOfRun(c, x);
  TG_ASSIGN_OR_RETURN(const std::vector<SlicePart> parts, SliceParts(c, x.shape()));
  for (const SlicePart& part : parts) {
    x = x.Slice(part.axis, part.begin, part.end);
    if (part.step < 0) x = x.Flip({part.axis});
    x = x.Stride(part.axis, std::abs(part.step));
  }
  return c.Output(x);
}

// Into the sizes given, or into as many as there are results: then all are equal but the last one,
// which may be smaller since opset 18.
absl::Status SplitOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("split", given, x.rank()));
  TG_ASSIGN_OR_RETURN(Axes sizes, c.IntsOrInput("split", 1, 13));
  if (!x.dims()[axis].is_static()) {
    return Unimplemented("axis ", axis, ", along which it is split, has a size of the run");
  }
  const int64_t n = x.shape()[axis];
  const auto results = static_cast<int64_t>(c.node().outputs.size());
  TG_ASSIGN_OR_RETURN(const int64_t parts, c.Int("num_outputs", results));
  if (parts != results || results == 0) {
    return InvalidArgument("has ", results, " results, expected ", parts);
  }
  if (sizes.empty()) {
    if (c.opset() < 18 && n % parts != 0) {
      return InvalidArgument("axis ", axis, " of ", ToString(x.shape()), " has no ", parts,
                             " equal parts");
    }
    const int64_t size = CeilDiv(n, parts);
    for (int64_t i = 0; i < parts; ++i) {
      sizes.push_back(std::clamp<int64_t>(n - i * size, 0, size));
    }
  }
  if (static_cast<int64_t>(sizes.size()) != results) {
    return InvalidArgument(sizes.size(), " sizes for ", results, " results");
  }
  int64_t end = 0;
  for (const int64_t size : sizes) {
    const int64_t begin = end;
    if (size < 0 || !CheckedAdd(begin, size, &end) || end > n) {
      return InvalidArgument("the sizes do not add up to axis ", axis, " of ", ToString(x.shape()));
    }
    TG_RETURN_IF_ERROR(c.Output(x.Slice(axis, begin, end)));
  }
  if (end != n) {
    return InvalidArgument("the sizes do not add up to axis ", axis, " of ", ToString(x.shape()));
  }
  return absl::OkStatus();
}

absl::Status TileOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Dims repeats, c.Sizes(1));
  for (Dim& n : repeats) {
    if (!n.is_static()) n = MaxDims(&c.builder(), n, 0);
  }
  if (static_cast<int64_t>(repeats.size()) != x.rank()) {
    return InvalidArgument(repeats.size(), " repeats for ", ToString(x.shape()));
  }
  return c.Output(x.Repeat(repeats));
}

// Keeps what is on and above diagonal k, or on and below it; 0 elsewhere.
absl::Status TriluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t upper, c.Int("upper", 1));
  if (x.rank() < 2) return InvalidArgument("a tensor of shape ", ToString(x.shape()));
  Tensor diagonal = c.builder().Const(DType::kInt64, 0);
  if (c.HasInput(1)) {
    TG_ASSIGN_OR_RETURN(diagonal, c.Input(1));
    if (diagonal.size() != 1 || diagonal.dtype() != DType::kInt64) {
      return InvalidArgument("'k' is not one i64");
    }
    diagonal = diagonal.Reshape({});
  }
  const Dims dims = x.dims();
  const Tensor row = c.builder().Iota(DType::kInt64, dims[dims.size() - 2]).Unsqueeze(-1);
  const Tensor column = c.builder().Iota(DType::kInt64, dims.back());
  const Tensor kept = upper != 0 ? column.Ge(row + diagonal) : column.Le(row + diagonal);
  return c.Output(kept.Where(x, x.Like(0)));
}

}  // namespace telegrad::onnx
