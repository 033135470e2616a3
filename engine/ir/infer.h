// The type and shape rules of the op table: what a node's dtype and shape are, and whether it is
// allowed.
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct Inferred {
  DType dtype = DType::kVoid;
  Shape shape;
};

// Checks arity, argument words, element types and shapes against the op's row. The error says what
// was wrong and what was expected, and starts with the op's name.
absl::StatusOr<Inferred> Infer(Op op, DType dtype, std::span<const UOp> src,
                               std::span<const int64_t> arg);

// Bounds of an integer or bool node; unknown for floats.
Interval InferBounds(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg);

}  // namespace telegrad
