// Convolutions and pools. ONNX lists pads as all begins, then all ends; Window takes (begin, end)
// for each axis. The numbers come from a file: all are bounded before they are used.
#include <algorithm>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/shapes.h"

namespace telegrad::onnx {
namespace {

struct Geometry {
  std::vector<int64_t> kernel;
  Window window;  // one number for each spatial axis, two for pads
};

absl::Status CheckList(std::string_view name, const std::vector<int64_t>& list, size_t size,
                       int64_t low) {
  if (list.size() != size) {
    return InvalidArgument("'", name, "' has ", list.size(), " numbers, expected ", size);
  }
  for (const int64_t v : list) {
    if (v < low || v > kMaxWindowNumber) {
      return InvalidArgument("'", name, "' has ", v, ", outside of [", low, ", ", kMaxWindowNumber,
                             "]");
    }
  }
  return absl::OkStatus();
}

// (begin, end) of each axis.
absl::StatusOr<std::vector<int64_t>> Pads(NodeContext& c, ShapeView spatial, const Geometry& g) {
  const size_t n = spatial.size();
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("auto_pad", "NOTSET"));
  TG_ASSIGN_OR_RETURN(const auto given, c.Ints("pads", std::vector<int64_t>(2 * n, 0)));
  TG_RETURN_IF_ERROR(CheckList("pads", given, 2 * n, 0));
  const bool upper = mode == "SAME_UPPER", lower = mode == "SAME_LOWER";
  if (!upper && !lower && mode != "NOTSET" && mode != "VALID") {
    return InvalidArgument("'auto_pad' is '", mode, "'");
  }
  std::vector<int64_t> out(2 * n, 0);
  for (size_t i = 0; i < n; ++i) {
    if (upper || lower) {
      // As many windows as strides fit; an odd pad goes to the end, or to the begin.
      const int64_t windows = CeilDiv(spatial[i], g.window.stride[i]);
      const int64_t extent = (g.kernel[i] - 1) * g.window.dilation[i] + 1;
      const int64_t total =
          std::max<int64_t>(0, (windows - 1) * g.window.stride[i] + extent - spatial[i]);
      const int64_t half = total / 2;
      out[2 * i] = upper ? half : total - half;
      out[2 * i + 1] = total - out[2 * i];
    } else if (mode == "NOTSET") {
      out[2 * i] = given[i];
      out[2 * i + 1] = given[n + i];
    }
  }
  return out;
}

absl::StatusOr<Geometry> ReadGeometry(NodeContext& c, const Tensor& x,
                                      std::vector<int64_t> kernel) {
  const Shape spatial(x.shape().begin() + 2, x.shape().end());
  const size_t n = spatial.size();
  Geometry g;
  g.kernel = std::move(kernel);
  TG_RETURN_IF_ERROR(CheckList("kernel_shape", g.kernel, n, 1));
  TG_ASSIGN_OR_RETURN(g.window.stride, c.Ints("strides", std::vector<int64_t>(n, 1)));
  TG_RETURN_IF_ERROR(CheckList("strides", g.window.stride, n, 1));
  TG_ASSIGN_OR_RETURN(g.window.dilation, c.Ints("dilations", std::vector<int64_t>(n, 1)));
  TG_RETURN_IF_ERROR(CheckList("dilations", g.window.dilation, n, 1));
  TG_ASSIGN_OR_RETURN(g.window.pads, Pads(c, spatial, g));
  TG_ASSIGN_OR_RETURN(const int64_t ceil_mode, c.Int("ceil_mode", 0));
  g.window.ceil_mode = ceil_mode != 0;
  return g;
}

absl::StatusOr<Tensor> SpatialInput(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (x.rank() < 3) {
    return InvalidArgument("the input has shape ", ToString(x.shape()), ", expected [N, C, ...]");
  }
  return x;
}

absl::StatusOr<Geometry> PoolGeometry(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const Attribute* kernel, c.Required("kernel_shape", AttributeType::kInts));
  return ReadGeometry(c, x, kernel->ints);
}

Axes SpatialAxes(const Tensor& x) {
  Axes axes;
  for (int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

}  // namespace

absl::Status ConvOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t groups, c.Int("group", 1));
  if (weight.rank() != x.rank()) {
    return InvalidArgument("the weight has shape ", ToString(weight.shape()), ", the input ",
                           ToString(x.shape()));
  }
  const std::vector<int64_t> kernel(weight.shape().begin() + 2, weight.shape().end());
  TG_ASSIGN_OR_RETURN(const auto declared, c.Ints("kernel_shape", kernel));
  if (declared != kernel) {
    return InvalidArgument("'kernel_shape' is ", ToString(declared), ", the weight has ",
                           ToString(kernel));
  }
  TG_ASSIGN_OR_RETURN(const Geometry g, ReadGeometry(c, x, kernel));
  Tensor out = x.Conv(weight, g.window, groups);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.Input(2));
    Shape column(x.rank() - 1, 1);
    column[0] = weight.dim(0);
    out = out + bias.Reshape(column);
  }
  return c.Output(out);
}

absl::Status MaxPoolOp(NodeContext& c) {
  TG_RETURN_IF_ERROR(c.FloatInput(0).status());
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Geometry g, PoolGeometry(c, x));
  c.Ignore("storage_order");  // it concerns the indices only, which are not made
  return c.Output(x.MaxPool(g.kernel, g.window));
}

absl::Status AveragePoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Geometry g, PoolGeometry(c, x));
  TG_ASSIGN_OR_RETURN(const int64_t count_pads, c.Int("count_include_pad", 0));
  return c.Output(x.AvgPool(g.kernel, g.window, count_pads != 0));
}

absl::Status GlobalAveragePoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  return c.Output(x.Mean(SpatialAxes(x), /*keepdim=*/true));
}

absl::Status GlobalMaxPoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  return c.Output(x.Max(SpatialAxes(x), /*keepdim=*/true));
}

}  // namespace telegrad::onnx
