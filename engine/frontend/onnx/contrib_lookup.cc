// com.microsoft's operators on tables: distances between rows, and rows of a table of few bits.
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {

// Between each row of A [M, K] and each of B [N, K].
absl::Status CDistOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor b, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const std::string_view metric, c.String("metric", "sqeuclidean"));
  if (metric != "sqeuclidean" && metric != "euclidean") {
    return InvalidArgument("'metric' is '", metric, "'");
  }
  if (a.rank() != 2 || b.rank() != 2 || a.dims()[1] != b.dims()[1]) {
    return InvalidArgument("rows of shapes ", ToString(a.dims()), " and ", ToString(b.dims()));
  }
  const Tensor difference = a.Unsqueeze(1) - b.Unsqueeze(0);
  const Tensor squares = (difference * difference).Sum({2});
  return c.Output(metric == "euclidean" ? squares.Sqrt() : squares);
}

// Data [.., K] of u8, which has 8 / bits elements in each byte; scales and zero points, packed
// likewise, are those of blocks of the last axis. Without zero points these are in the middle.
absl::Status GatherBlockQuantizedOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor data, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor indices, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor scales, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const int64_t bits, c.Int("bits", 4));
  TG_ASSIGN_OR_RETURN(const int64_t block, c.Int("block_size", 128));
  TG_ASSIGN_OR_RETURN(const int64_t given_gather, c.Int("gather_axis", 0));
  TG_ASSIGN_OR_RETURN(const int64_t given_blocks, c.Int("quantize_axis", 1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("gather", given_gather, data.rank()));
  TG_ASSIGN_OR_RETURN(const int64_t blocks_axis, ResolveAxis("gather", given_blocks, data.rank()));
  const int64_t last = data.rank() - 1;
  if (data.dtype() != DType::kUInt8 || (bits != 4 && bits != 8) || blocks_axis != last ||
      axis == last || block < 1) {
    return Unimplemented("data ", Name(data.dtype()), " ", ToString(data.dims()), " of ", bits,
                         " bits in blocks of ", block, " along axis ", blocks_axis,
                         "; supported are u8 of 4 or 8 bits in blocks along the last axis");
  }
  const DType wide = ComposedType(scales.dtype());
  const int64_t k = data.dim(last) * 8 / bits, blocks = (k + block - 1) / block;
  if (scales.rank() != data.rank() || scales.dim(last) != blocks) {
    return InvalidArgument("the scales have shape ", ToString(scales.dims()), " for ", blocks,
                           " blocks");
  }
  // Each element of a gathered row has its block's.
  const auto spread = [&](const Tensor& of_blocks) {
    const int64_t end = of_blocks.rank() - 1;
    const Tensor column = of_blocks.Unsqueeze(-1);
    Dims dims = column.dims();
    dims.back() = Dim(block);
    return column.Expand(dims).Flatten(end, end + 1).Slice(end, 0, k);
  };
  const auto taken = [&](const Tensor& t) { return t.IndexSelect(axis, indices); };
  Tensor zero = c.builder().Full(wide, Shape{}, int64_t{1} << (bits - 1));
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor points, c.Input(3));
    zero = spread(Unpacked(taken(points), bits).Slice(-1, 0, blocks).Cast(wide));
  }
  const Tensor whole = Unpacked(taken(data), bits).Cast(wide);
  return c.Output(((whole - zero) * spread(taken(scales)).Cast(wide)).Cast(scales.dtype()));
}

}  // namespace telegrad::onnx
