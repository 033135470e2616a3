// Views, backwards: how a value that stands for a part of a tensor gets back into the tensor.
#pragma once

#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// `value`, shaped as `view`, moved to where its elements come from in `base`, of which `view` is
// made by reshape, permute, flip, shrink and pad. `mask` (bool, of the base's shape) says where the
// view has elements; it is an empty tensor if that is everywhere. What the view padded, and what a
// symbolic part has beyond its axis, goes nowhere. Invalid after an error, which names `op`.
struct Placed {
  Tensor value, mask;
};
Placed PutBack(std::string_view op, const Tensor& view, UOp base, const Tensor& value);

// `base` with the elements of the view replaced by `value`.
Tensor ReplaceView(std::string_view op, const Tensor& view, const Tensor& base,
                   const Tensor& value);

// The words of a movement as sizes, those of symbolic ones by their nodes.
Dims WordsOf(UOp movement);

}  // namespace telegrad
