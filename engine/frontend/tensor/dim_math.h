// Arithmetic on sizes and positions that may be symbolic. Numbers fold; of a symbolic one the added
// numbers are kept together, so that n + 2 - n is 2 and n + 1 - 1 is the node of n itself: two
// symbolic sizes are equal when they are the same node.
#pragma once

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dims.h"

namespace telegrad {

// The least and the greatest value of a size.
Interval BoundsOf(const Dim& dim);

Dim AddDims(Builder* builder, const Dim& a, const Dim& b);
Dim SubDims(Builder* builder, const Dim& a, const Dim& b);
Dim MulDims(Builder* builder, const Dim& a, const Dim& b);
Dim MaxDims(Builder* builder, const Dim& a, const Dim& b);
Dim MinDims(Builder* builder, const Dim& a, const Dim& b);

// The size as a scalar i64.
Tensor AsTensor(Builder* builder, const Dim& dim);

// Whether a node is a scalar i64 that is known before a run does anything: made of constants and
// variables.
bool IsHostSize(UOp u);

}  // namespace telegrad
