// Convolutions and pools. ONNX lists pads as all begins, then all ends; Window takes (begin, end)
// for each axis. The numbers come from a file: all are bounded before they are used.
#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/ops/windows.h"

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

// The formula of the pools' text gives SAME_UPPER and SAME_LOWER a negative pad where steps are
// longer than windows: so many elements are left out, half of them at the begin. An odd one is left
// out at the end, of SAME_LOWER at the begin, as an odd pad is added there; ONNX Runtime, which
// `as_runtime` follows, leaves it out at the end of both. Returned is what is kept, by axis.
absl::StatusOr<std::vector<int64_t>> Kept(NodeContext& c, const Tensor& x, const Geometry& g,
                                          bool as_runtime) {
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("auto_pad", "NOTSET"));
  std::vector<int64_t> kept;
  for (const int64_t size : x.shape()) kept.insert(kept.end(), {0, size});
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER") return kept;
  for (size_t i = 0; i < g.kernel.size(); ++i) {
    const int64_t in = x.dim(static_cast<int64_t>(i) + 2);
    const int64_t windows = CeilDiv(in, g.window.stride[i]);
    const int64_t extent = (g.kernel[i] - 1) * g.window.dilation[i] + 1;
    const int64_t crop = std::max<int64_t>(0, in - (windows - 1) * g.window.stride[i] - extent);
    const int64_t odd = mode == "SAME_UPPER" ? 0 : as_runtime ? -1 : 1;
    const int64_t begin = (crop + odd) / 2;
    kept[2 * i + 4] = begin;
    kept[2 * i + 5] = in - (crop - begin);
  }
  return kept;
}

absl::StatusOr<Tensor> Cropped(NodeContext& c, const Tensor& x, const Geometry& g) {
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, Kept(c, x, g, /*as_runtime=*/true));
  return x.Shrink(kept);
}

Axes SpatialAxes(const Tensor& x) {
  Axes axes;
  for (int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

absl::StatusOr<double> NormNumber(NodeContext& c) {
  if (c.opset() < 2) return c.Float("p", 2);
  TG_ASSIGN_OR_RETURN(const int64_t p, c.Int("p", 2));
  if (p < 1) return InvalidArgument("'p' is ", p);
  return static_cast<double>(p);
}

// The spatial axes of the weight, which `kernel_shape` may repeat.
absl::StatusOr<std::vector<int64_t>> KernelOf(NodeContext& c, const Tensor& weight) {
  const std::vector<int64_t> kernel(weight.shape().begin() + 2, weight.shape().end());
  TG_ASSIGN_OR_RETURN(const auto declared, c.Ints("kernel_shape", kernel));
  if (declared != kernel) {
    return InvalidArgument("'kernel_shape' is ", ToString(declared), ", the weight has ",
                           ToString(kernel));
  }
  return kernel;
}

// Whether no window lies in the padding alone, whatever the size of the image.
bool HasElements(const Geometry& g) {
  bool less = !g.window.ceil_mode;
  for (const int64_t d : g.window.dilation) less &= d == 1;
  for (size_t i = 0; i < g.window.pads.size(); ++i) {
    less &= g.window.pads[i] < *std::ranges::min_element(g.kernel);
  }
  return less;
}

absl::Status OutputWithBias(NodeContext& c, const Tensor& x, int i) {
  if (!c.HasInput(i)) return c.Output(x);
  TG_ASSIGN_OR_RETURN(const Tensor bias, c.Input(i));
  if (bias.size() != x.dim(1)) {
    return InvalidArgument("the bias has shape ", ToString(bias.shape()), " for ", x.dim(1),
                           " channels");
  }
  return c.Output(x + AlongAxis(bias, 1, x.rank()));
}

}  // namespace

absl::StatusOr<Tensor> ConvByAttributes(NodeContext& c, const Tensor& x, const Tensor& weight) {
  TG_ASSIGN_OR_RETURN(const int64_t groups, c.Int("group", 1));
  if (x.rank() < 3 || weight.rank() != x.rank()) {
    return InvalidArgument("the weight has shape ", ToString(weight.shape()), ", the input ",
                           ToString(x.shape()));
  }
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, KernelOf(c, weight));
  TG_ASSIGN_OR_RETURN(const Geometry g, ReadGeometry(c, x, kernel));
  return x.Conv(weight, g.window, groups);
}

absl::StatusOr<AxisWindows> WindowsByAttributes(NodeContext& c, const Tensor& x,
                                                const Tensor& weight) {
  if (x.rank() < 3 || weight.rank() != x.rank()) {
    return InvalidArgument("the weight has shape ", ToString(weight.shape()), ", the input ",
                           ToString(x.shape()));
  }
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, KernelOf(c, weight));
  TG_ASSIGN_OR_RETURN(const Geometry g, ReadGeometry(c, x, kernel));
  return ResolveWindows("convolution", x, kernel, g.window);
}

absl::Status ConvOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.Input(1));
  TG_ASSIGN_OR_RETURN(Tensor out, ConvByAttributes(c, x, weight));
  return OutputWithBias(c, out, 2);
}

// The full result is as long as all windows reach; pads cut it off, and what the output has on top
// is 0 before the bias.
absl::Status ConvTransposeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t groups, c.Int("group", 1));
  if (weight.rank() != x.rank()) {
    return InvalidArgument("the weight has shape ", ToString(weight.shape()), ", the input ",
                           ToString(x.shape()));
  }
  const size_t n = static_cast<size_t>(x.rank() - 2);
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, KernelOf(c, weight));
  Window window;
  TG_ASSIGN_OR_RETURN(window.stride, c.Ints("strides", std::vector<int64_t>(n, 1)));
  TG_RETURN_IF_ERROR(CheckList("strides", window.stride, n, 1));
  TG_ASSIGN_OR_RETURN(window.dilation, c.Ints("dilations", std::vector<int64_t>(n, 1)));
  TG_RETURN_IF_ERROR(CheckList("dilations", window.dilation, n, 1));
  TG_ASSIGN_OR_RETURN(const auto more, c.Ints("output_padding", std::vector<int64_t>(n, 0)));
  TG_RETURN_IF_ERROR(CheckList("output_padding", more, n, 0));
  TG_ASSIGN_OR_RETURN(const auto pads, c.Ints("pads", std::vector<int64_t>(2 * n, 0)));
  TG_RETURN_IF_ERROR(CheckList("pads", pads, 2 * n, 0));
  TG_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, c.Ints("output_shape", {}));
  // Some exporters list the batch and the channels too.
  if (sizes.size() == n + 2) sizes.erase(sizes.begin(), sizes.begin() + 2);
  if (!sizes.empty()) TG_RETURN_IF_ERROR(CheckList("output_shape", sizes, n, 0));
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("auto_pad", "NOTSET"));
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "NOTSET" && mode != "VALID") {
    return InvalidArgument("'auto_pad' is '", mode, "'");
  }
  std::vector<int64_t> pairs(static_cast<size_t>(2 * x.rank()), 0);
  for (size_t i = 0; i < n; ++i) {
    const int64_t in = x.dim(static_cast<int64_t>(i) + 2), stride = window.stride[i];
    const int64_t full = stride * (in - 1) + (kernel[i] - 1) * window.dilation[i] + 1;
    int64_t begin = mode == "VALID" ? 0 : pads[i];
    int64_t size = full + more[i] - (mode == "VALID" ? 0 : pads[i] + pads[n + i]);
    if (same || !sizes.empty()) {
      size = sizes.empty() ? in * stride : sizes[i];
      const int64_t total = std::max<int64_t>(0, full + more[i] - size);
      begin = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    if (size < 0 || size > kMaxWindowNumber) return InvalidArgument("axis ", i + 2, " has ", size);
    pairs[2 * i + 4] = -begin;
    pairs[2 * i + 5] = size - full + begin;
  }
  const Tensor full = x.ConvTranspose(weight, window, groups);
  return OutputWithBias(c, full.Pad(pairs, PadMode::kConstant), 2);
}

// The second result has the flat position of each maximum in the input: row-major, or with
// `storage_order` 1 column-major within a channel.
absl::Status MaxPoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Geometry g, PoolGeometry(c, x));
  TG_ASSIGN_OR_RETURN(const int64_t column_major, c.Int("storage_order", 0));
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, Kept(c, x, g, /*as_runtime=*/false));
  const Tensor part = x.Shrink(kept);
  if (c.node().outputs.size() < 2 || c.node().outputs[1].empty()) {
    // Where every window has an element, the largest one is that of the largest integer.
    const std::optional<Dequantized> from = DequantizedOf(x);
    if (from && HasElements(g)) {
      return c.Output(from->Of(from->whole.Shrink(kept).MaxPool(g.kernel, g.window)));
    }
    return c.Output(part.MaxPool(g.kernel, g.window));
  }
  const auto [values, positions] = part.MaxPoolIndices(g.kernel, g.window);
  TG_RETURN_IF_ERROR(c.Output(values));
  const ShapeView spatial = x.shape().subspan(2);
  const int64_t plane = NumElements(spatial);
  // The position on each axis of what is kept, and with it that in the whole.
  Tensor rest = positions.Cast(DType::kInt64), at;
  int64_t row_major = 1, stride = plane;
  for (size_t i = spatial.size(); i-- > 0;) {
    const int64_t size = std::max<int64_t>(1, part.dim(static_cast<int64_t>(i) + 2));
    const Tensor on_axis = rest.FloorMod(size) + kept[2 * i + 4];
    rest = rest.FloorDiv(size);
    if (column_major != 0) stride /= std::max<int64_t>(1, spatial[i]);
    const Tensor of_axis = on_axis * (column_major != 0 ? stride : row_major);
    at = at.valid() ? at + of_axis : of_axis;
    row_major *= spatial[i];
  }
  Shape planes(static_cast<size_t>(x.rank()), 1);
  planes[0] = x.dim(0);
  planes[1] = x.dim(1);
  const Tensor first = c.builder().Iota(DType::kInt64, x.dim(0) * x.dim(1)).Reshape(planes) * plane;
  return c.Output(at + first);
}

absl::StatusOr<Tensor> AveragePoolByAttributes(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const Geometry g, PoolGeometry(c, x));
  TG_ASSIGN_OR_RETURN(const int64_t count_pads, c.Int("count_include_pad", 0));
  TG_ASSIGN_OR_RETURN(const Tensor kept, Cropped(c, x, g));
  return kept.AvgPool(g.kernel, g.window, count_pads != 0);
}

absl::Status AveragePoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Tensor out, AveragePoolByAttributes(c, x));
  return c.Output(out);
}

// The p-norm of each window; in opset 1 `p` is a float.
absl::Status LpPoolOp(NodeContext& c) {
  TG_RETURN_IF_ERROR(c.FloatInput(0).status());
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Geometry g, PoolGeometry(c, x));
  TG_ASSIGN_OR_RETURN(const double p, NormNumber(c));
  TG_ASSIGN_OR_RETURN(const Tensor kept, Cropped(c, x, g));
  return c.Output(kept.LpPool(g.kernel, g.window, p));
}

absl::Status GlobalLpPoolOp(NodeContext& c) {
  TG_RETURN_IF_ERROR(c.FloatInput(0).status());
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const double p, NormNumber(c));
  return c.Output(x.Norm(SpatialAxes(x), p, /*keepdim=*/true).Cast(x.dtype()));
}

// Elements at their flat positions among zeros of the shape that the windows cover, in the corner
// of the shape that input 2 says.
absl::Status MaxUnpoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Attribute* kernel, c.Required("kernel_shape", AttributeType::kInts));
  const size_t n = static_cast<size_t>(x.rank() - 2);
  TG_RETURN_IF_ERROR(CheckList("kernel_shape", kernel->ints, n, 1));
  TG_ASSIGN_OR_RETURN(const auto strides, c.Ints("strides", std::vector<int64_t>(n, 1)));
  TG_RETURN_IF_ERROR(CheckList("strides", strides, n, 1));
  TG_ASSIGN_OR_RETURN(const auto pads, c.Ints("pads", std::vector<int64_t>(2 * n, 0)));
  TG_RETURN_IF_ERROR(CheckList("pads", pads, 2 * n, 0));
  Shape shape = {x.dim(0), x.dim(1)};
  for (size_t i = 0; i < n; ++i) {
    const int64_t in = x.dim(static_cast<int64_t>(i) + 2);
    shape.push_back((in - 1) * strides[i] + kernel->ints[i] - pads[i] - pads[n + i]);
    if (shape.back() < 0) return InvalidArgument("the result has the shape ", ToString(shape));
  }
  TG_RETURN_IF_ERROR(CheckedByteSize(x.dtype(), shape).status());
  const Tensor zeros = c.builder().Zeros({NumElements(shape)}, x.dtype());
  Tensor out = zeros.Scatter(index.Flatten(), x.Flatten(), ScatterKind::kSet).Reshape(shape);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Shape wanted, c.Numbers(2));
    if (wanted.size() != shape.size()) return InvalidArgument("a shape ", ToString(wanted));
    std::vector<int64_t> pairs;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (wanted[i] < shape[i]) {
        return InvalidArgument("the shape ", ToString(wanted), ", expected at least ",
                               ToString(shape));
      }
      pairs.insert(pairs.end(), {0, wanted[i] - shape[i]});
    }
    out = out.Pad(pairs);
  }
  return c.Output(out);
}

// Overlapping blocks summed into an image.
absl::Status Col2ImOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Shape image, c.Numbers(1));
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> block, c.Numbers(2));
  const size_t n = image.size();
  TG_RETURN_IF_ERROR(CheckList("image_shape", image, n, 1));
  TG_RETURN_IF_ERROR(CheckList("block_shape", block, n, 1));
  const int64_t each = NumElements(block);
  if (x.rank() != 3 || n == 0 || each < 1 || x.dim(1) % each != 0) {
    return InvalidArgument("blocks of shape ", ToString(block), " in an input of shape ",
                           ToString(x.shape()));
  }
  Shape whole = {x.dim(0), x.dim(1) / each};
  whole.insert(whole.end(), image.begin(), image.end());
  TG_RETURN_IF_ERROR(CheckedByteSize(x.dtype(), whole).status());
  const Tensor like = c.builder().Zeros(whole, x.dtype());
  TG_ASSIGN_OR_RETURN(const Geometry g, ReadGeometry(c, like, block));
  TG_ASSIGN_OR_RETURN(const AxisWindows windows, ResolveWindows("col2im", like, block, g.window));
  Shape split = {whole[0], whole[1]};
  split.insert(split.end(), block.begin(), block.end());
  Axes order = {0, 1};
  int64_t count = 1;
  for (size_t i = 0; i < n; ++i) {
    split.push_back(windows[i].out);
    count *= windows[i].out;
    order.push_back(static_cast<int64_t>(2 + n + i));
  }
  for (size_t i = 0; i < n; ++i) order.push_back(static_cast<int64_t>(2 + i));
  if (count != x.dim(2)) return InvalidArgument(x.dim(2), " blocks, expected ", count);
  return c.Output(SumWindows(x.Reshape(split).Permute(order), windows));
}

absl::Status GlobalAveragePoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  return c.Output(x.Mean(SpatialAxes(x), /*keepdim=*/true));
}

// com.microsoft's: the channels are the last axis.
absl::Status NhwcMaxPoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor given, SpatialInput(c));
  const Tensor x = given.MoveAxis(-1, 1);
  TG_ASSIGN_OR_RETURN(const Geometry g, PoolGeometry(c, x));
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, Kept(c, x, g, /*as_runtime=*/true));
  return c.Output(x.Shrink(kept).MaxPool(g.kernel, g.window).MoveAxis(1, -1));
}

absl::Status GlobalMaxPoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, SpatialInput(c));
  return c.Output(x.Max(SpatialAxes(x), /*keepdim=*/true));
}

}  // namespace telegrad::onnx
