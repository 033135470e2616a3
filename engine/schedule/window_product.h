// A kernel that is a convolution with a window of 3 x 3, stride 1, found by how it reads memory:
// not by the ops that a client wrote it with.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// y[outer..., o, row, column] = f(sum over c, i, j of x[outer..., c, row + i, column + j] *
// w[o, c, i, j]). UOps are of the kernel's graph.
struct WindowProduct {
  UOp store;
  UOp reduce;
  UOp input;                 // the expression of x; reads only row + i and column + j
  UOp weight;                // the LOAD of w
  std::vector<UOp> outer;    // RANGEs that the output and x have, but w does not
  UOp row, column, outputs;  // RANGEs
  UOp row_tap, column_tap, channels;
};

// `sink` is a kernel as the schedule makes it. Only f32.
std::optional<WindowProduct> FindWindowProduct(UOp sink);

}  // namespace telegrad
