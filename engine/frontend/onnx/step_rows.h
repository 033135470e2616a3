// What the steps of a recurrence read, one slice each.
#pragma once

#include <span>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad::onnx {

// The slices of a tensor along an axis, stored so that each begins at a multiple of the alignment
// of temporaries. The scheduler then binds the same kernel to other rows for each step
// (argument_views.h), where slices of anything else make each step a kernel of its own, which took
// most of a model's time to load.
class StepRows {
 public:
  // Slices of `x` itself where its sizes are not known, or there are few.
  StepRows(const Tensor& x, int64_t axis);
  // Number `step`, without the axis.
  Tensor At(int64_t step) const;

 private:
  Tensor rows_;  // [steps, elements and padding], or the tensor
  int64_t axis_ = 0;
  bool stored_ = false;
  Dims slice_;  // the shape of one
  int64_t size_ = 0;
};

// The results of all steps along a new axis. Many are joined in groups of one size first, by one
// kernel that is compiled once: a kernel takes longer to compile the more arguments it has.
Tensor StackSteps(std::span<const Tensor> parts, int64_t axis);

}  // namespace telegrad::onnx
