// Operators that move blocks of elements between axes, or the middle of axes.
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// The order of the parts of a depth: block row, block column, channel, or channel first.
absl::StatusOr<bool> DepthFirst(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("mode", "DCR"));
  if (mode != "DCR" && mode != "CRD") {
    return InvalidArgument("'mode' is '", mode, "', expected DCR or CRD");
  }
  return mode == "DCR";
}

absl::StatusOr<int64_t> BlockSize(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const Attribute* size, c.Required("blocksize", AttributeType::kInt));
  if (size->i < 1 || size->i > kMaxWindowNumber || x.rank() != 4) {
    return InvalidArgument("'blocksize' is ", size->i, " for shape ", ToString(x.shape()),
                           ", expected [N, C, H, W]");
  }
  return size->i;
}

}  // namespace

absl::Status DepthToSpaceOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t b, BlockSize(c, x));
  TG_ASSIGN_OR_RETURN(const bool depth_first, DepthFirst(c));
  const int64_t n = x.dim(0), depth = x.dim(1) / (b * b), h = x.dim(2), w = x.dim(3);
  if (x.dim(1) % (b * b) != 0) {
    return InvalidArgument(x.dim(1), " channels, expected a multiple of ", b * b);
  }
  const Tensor parts = depth_first ? x.Reshape({n, b, b, depth, h, w}).Permute({0, 3, 4, 1, 5, 2})
                                   : x.Reshape({n, depth, b, b, h, w}).Permute({0, 1, 4, 2, 5, 3});
  return c.Output(parts.Reshape({n, depth, h * b, w * b}));
}

absl::Status SpaceToDepthOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t b, BlockSize(c, x));
  TG_ASSIGN_OR_RETURN(const bool depth_first, DepthFirst(c));
  const int64_t n = x.dim(0), channels = x.dim(1), h = x.dim(2) / b, w = x.dim(3) / b;
  if (x.dim(2) % b != 0 || x.dim(3) % b != 0) {
    return InvalidArgument("height and width ", x.dim(2), " and ", x.dim(3),
                           ", expected multiples of ", b);
  }
  const Tensor parts = x.Reshape({n, channels, h, b, w, b});
  const Tensor moved =
      depth_first ? parts.Permute({0, 3, 5, 1, 2, 4}) : parts.Permute({0, 1, 3, 5, 2, 4});
  return c.Output(moved.Reshape({n, channels * b * b, h, w}));
}

// Each axis cut or padded with zeros around its middle to the size that input 1 says.
absl::Status CenterCropPadOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, c.Numbers(1));
  TG_ASSIGN_OR_RETURN(const Axes given, c.Ints("axes", AllAxes(x.rank())));
  TG_RETURN_IF_ERROR(ResolveAxes("center_crop_pad", given, x.rank()).status());  // none twice
  if (sizes.size() != given.size()) {
    return InvalidArgument(sizes.size(), " sizes for ", given.size(), " axes");
  }
  std::vector<int64_t> pairs(static_cast<size_t>(2 * x.rank()), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("center_crop_pad", given[i], x.rank()));
    if (sizes[i] < 0) return InvalidArgument("axis ", axis, " of size ", sizes[i]);
    const int64_t more = sizes[i] - x.dim(axis);
    pairs[2 * axis] = more / 2;  // toward zero: both ways the smaller part comes first
    pairs[2 * axis + 1] = more - more / 2;
  }
  return c.Output(x.Pad(pairs, PadMode::kConstant));
}

}  // namespace telegrad::onnx
