// Sums of products whose operands a workgroup's threads share: the tile of a matrix product.
#pragma once

#include <optional>

#include "engine/lowering/kernel_shape.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// REDUCE(add, MUL(f32 of LOAD a, f32 of LOAD b), k), or with its factors in the other order, that
// is the kernel's only reduction. Parallel ranges: m, which a depends on and b does not, n the
// other way round; stores are neighbours along n if along either. Both loads are without gates and
// move by a constant step along every range.
struct Matmul {
  UOp reduce, a, b;
  UOp m, n, k;
};

std::optional<Matmul> FindMatmul(const KernelShape& shape);

// Where in a tile an element of a fragment lies, along the tile's range and along k: the sum of
// what only the lane decides, and of what the element does, a vector.
struct FragmentPlace {
  UOp scalar_t, vector_t, scalar_k, vector_k;
};

// A matrix instruction of a warp as its lanes see it.
struct Fragments {
  MmaKind kind;
  UOp lane;  // a range of threads
  FragmentPlace a, b;
  struct {
    UOp row, column;  // one of them at least a vector
  } c;
  UOp zero;  // a fragment of c
};

// The unit's instruction for operands of that type with f32 sums; nullopt if there is none. A
// REDUCE(add) of an MMA with the fragment `zero` for its c is expanded into MMAs that add to the
// accumulator.
std::optional<Fragments> FragmentsFor(Rewriter& b, MatrixUnit unit, DType dtype, int64_t range_id);
std::optional<MmaKind> MmaFor(MatrixUnit unit, DType dtype);

}  // namespace telegrad
