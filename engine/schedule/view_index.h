// Views as index arithmetic: where an element of a view comes from.
#pragma once

#include <span>
#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

using Indices = std::vector<UOp>;  // one i64 scalar for each axis

// The indices of a movement op's source for those of its result; all dims are fixed. `*valid` gains
// the conditions under which they lie inside of a PAD's source; elsewhere they may be anything.
Indices SourceIndices(Rewriter& b, UOp view, std::span<const UOp> index, UOp* valid);

// 0 <= x < n; folds to true where the bounds show it.
UOp InRange(Rewriter& b, UOp x, int64_t n);

// The row-major position in `dims`.
UOp FlatIndex(Rewriter& b, ShapeView dims, std::span<const UOp> index);

// `x` under other dims; no view where they are its own, one where it was reshaped before.
UOp Reshaped(Graph& g, UOp x, const Shape& dims);

}  // namespace telegrad
