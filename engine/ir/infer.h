// What the op table implies about a node before it is made: its type, shape, devices and bounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// A node to be made. By reference: copies of spans that were just passed would wait for the stores
// of the node before.
struct NodeKey {
  Op op;
  DType dtype;
  const std::span<const UOp>& src;
  const std::span<const int64_t>& arg;
};

struct Inferred {
  DType dtype = DType::kVoid;
  int like = -1;  // the source whose dims these are, unless it is -1; then they are:
  absl::InlinedVector<int64_t, 6> shape;
  absl::InlinedVector<uint32_t, 6>
      symbolic;        // the node of each dim or kStaticDim; empty: all static
  uint16_t place = 0;  // a list of devices of the graph, unless `devices` is not empty
  std::vector<int64_t> devices;
};

bool Allows(Elements elements, DType dtype);

// Checks arity, argument words, element types, shapes and devices against the op's row. The error
// says what was wrong and what was expected, and starts with the op's name.
absl::Status Infer(const NodeKey& key, Inferred* out);

// Bounds of an integer or bool node; unknown for floats.
Interval InferBounds(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg);

}  // namespace telegrad
