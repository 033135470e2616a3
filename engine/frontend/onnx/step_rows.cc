#include "engine/frontend/onnx/step_rows.h"

#include <algorithm>
#include <vector>

#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kRowBytes = 256;
constexpr int64_t kFew = 4;  // steps
constexpr size_t kGroup = 32;

}  // namespace

StepRows::StepRows(const Tensor& x, int64_t axis) : rows_(x), axis_(axis) {
  if (!x.valid() || axis < -x.rank() || axis >= x.rank()) return;  // a slice says so
  if (axis_ < 0) axis_ += x.rank();
  axis = axis_;
  if (!x.dims().is_static() || x.dim(axis) < kFew || x.size() == 0) return;
  const int64_t steps = x.dim(axis), unit = kRowBytes / ByteSize(x.dtype());
  const Tensor moved = x.MoveAxis(axis, 0);
  const Dims dims = moved.dims();
  slice_ = Dims(dims.begin() + 1, dims.end());
  size_ = x.size() / steps;
  rows_ = moved.Reshape({steps, size_}).Pad({0, 0, 0, CeilDiv(size_, unit) * unit - size_});
  rows_ = rows_.Contiguous();
  stored_ = true;
}

Tensor StepRows::At(int64_t step) const {
  if (!stored_) return rows_.Slice(axis_, step, step + 1).Squeeze(axis_);
  return rows_.Slice(0, step, step + 1).Slice(1, 0, size_).Reshape(slice_);
}

Tensor StackSteps(std::span<const Tensor> parts, int64_t axis) {
  if (parts.size() <= 2 * kGroup) return Stack(parts, axis);
  std::vector<Tensor> groups;
  for (size_t i = 0; i < parts.size(); i += kGroup) {
    const size_t count = std::min(kGroup, parts.size() - i);
    groups.push_back(Stack(parts.subspan(i, count), 0).Contiguous());
  }
  const Tensor all = Concat(groups, 0);
  return axis == 0 || !all.valid() ? all : all.MoveAxis(0, axis);
}

}  // namespace telegrad::onnx
