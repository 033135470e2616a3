// A position that is a number or a size is clamped in the arithmetic of sizes, so that equal parts
// have equal sizes; one that is computed by the graph is clamped there and becomes a size.
#include "engine/frontend/onnx/run_slice.h"

#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

// The numbers of one of the inputs, or of an attribute: sizes, or scalars of the graph.
struct SliceEnd {
  Dim size = 0;
  Tensor scalar = {};  // if valid, instead
};

absl::StatusOr<std::vector<SliceEnd>> ReadPositions(NodeContext& c, int i, std::string_view name) {
  std::vector<SliceEnd> out;
  if (c.opset() < 10) {
    TG_ASSIGN_OR_RETURN(const auto numbers, c.Ints(name, {}));
    for (const int64_t number : numbers) out.push_back({number});
    return out;
  }
  TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(i));
  TG_ASSIGN_OR_RETURN(const bool by_run, c.DecidedByRun({i}));
  if (value->sizes != nullptr || !by_run) {
    TG_ASSIGN_OR_RETURN(const Dims sizes, c.Sizes(i));
    for (const Dim& size : sizes) out.push_back({size});
    return out;
  }
  TG_ASSIGN_OR_RETURN(const Tensor all, c.Input(i));
  if (all.rank() != 1 || !all.dims().is_static()) {
    return InvalidArgument("input ", i, " has the shape ", ToString(all.dims()),
                           ", expected a list");
  }
  for (int64_t k = 0; k < all.dim(0); ++k) {
    out.push_back({0, all.Slice(0, k, k + 1).Reshape({}).Cast(DType::kInt64)});
  }
  return out;
}

// Within [0, n], counted from the end where negative. `after`, 0 or 1, is added before clamping,
// unless the position is before the first element.
absl::StatusOr<Dim> Clamped(NodeContext& c, const SliceEnd& p, const Dim& n, int64_t after) {
  Builder* b = &c.builder();
  if (p.scalar.valid()) {
    const Tensor size = AsTensor(b, n);
    const Tensor at = p.scalar.Lt(0).Where(p.scalar.Maximum(-n.size() - 1) + size, p.scalar);
    return c.RunSize((at.Minimum(n.size()) + after).Maximum(0).Minimum(size), n.size());
  }
  const Interval bounds = BoundsOf(p.size);
  if (bounds.lo >= 0) {
    return MinDims(
        b, p.size.is_static() && p.size.size() > n.size() ? n : AddDims(b, p.size, after), n);
  }
  if (!p.size.is_static()) return Unimplemented("a position that may be negative or not");
  if (p.size.size() + after < -n.size()) return Dim(0);
  // Where there are elements, -1 + 1 is the end and not the first element.
  return MaxDims(b, AddDims(b, n, p.size.size() + after), 0);
}

}  // namespace

absl::StatusOr<bool> SliceDecidedByRun(NodeContext& c, const Tensor& x) {
  if (!x.dims().is_static()) return true;
  if (c.opset() < 10) return false;
  for (const int i : {1, 2}) {
    if (!c.HasInput(i)) continue;
    TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(i));
    if (value->sizes != nullptr) return true;
    if (value->kind != Value::Kind::kTensor) continue;
    // What the caller has given is cheaper as a number.
    TG_ASSIGN_OR_RETURN(const bool by_run, c.DecidedByRun({i}));
    if (by_run) return true;
  }
  return false;
}

absl::Status SliceOfRun(NodeContext& c, Tensor x) {
  TG_ASSIGN_OR_RETURN(const auto starts, ReadPositions(c, 1, "starts"));
  TG_ASSIGN_OR_RETURN(const auto ends, ReadPositions(c, 2, "ends"));
  TG_ASSIGN_OR_RETURN(Axes axes, c.IntsOrInput("axes", 3, 10));
  Axes steps(starts.size(), 1);
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(steps, c.Numbers(4));
  }
  if (axes.empty()) {
    axes = AllAxes(x.rank());
    axes.resize(std::min(starts.size(), axes.size()));
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return InvalidArgument(starts.size(), " starts, ", ends.size(), " ends, ", axes.size(),
                           " axes and ", steps.size(), " steps: expected as many of each");
  }
  TG_RETURN_IF_ERROR(ResolveAxes("slice", axes, x.rank()).status());  // none twice
  for (size_t i = 0; i < starts.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("slice", axes[i], x.rank()));
    const int64_t step = steps[i];
    if (step == 0 || step == INT64_MIN) {
      return InvalidArgument("the step ", step, " of axis ", axis);
    }
    const Dim n = x.dims()[axis];
    const bool falling = step < 0;  // from `start` down to before `end`
    TG_ASSIGN_OR_RETURN(const Dim begin, Clamped(c, falling ? ends[i] : starts[i], n, falling));
    TG_ASSIGN_OR_RETURN(Dim end, Clamped(c, falling ? starts[i] : ends[i], n, falling));
    Builder* b = &c.builder();
    // A falling slice that starts before the first element starts there.
    if (falling) end = MaxDims(b, end, MinDims(b, n, 1));
    x = x.Narrow(axis, begin, MaxDims(b, SubDims(b, end, begin), 0));
    if (falling) x = x.Flip({axis});
    x = x.Stride(axis, std::abs(step));
  }
  return c.Output(x);
}

}  // namespace telegrad::onnx
