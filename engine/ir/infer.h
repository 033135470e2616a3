// What the op table implies about a node before it is made: its type, shape, devices and bounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct Inferred {
  DType dtype = DType::kVoid;
  Shape shape;
  std::vector<uint32_t> symbolic;  // by axis: the node of the dim or kStaticDim; empty: all static
  uint16_t place = 0;              // a list of devices of the graph, unless `devices` is not empty
  std::vector<int64_t> devices;
};

// Checks arity, argument words, element types, shapes and devices against the op's row. The error
// says what was wrong and what was expected, and starts with the op's name.
absl::StatusOr<Inferred> Infer(Op op, DType dtype, std::span<const UOp> src,
                               std::span<const int64_t> arg);

// Bounds of an integer or bool node; unknown for floats.
Interval InferBounds(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg);

}  // namespace telegrad
