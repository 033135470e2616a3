// Sums of products whose operands a workgroup's threads share: the tile of a matrix product.
#pragma once

#include <optional>

#include "engine/lowering/kernel_shape.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// The LOAD that a factor of a product is as f32; invalid where it is computed otherwise.
UOp FactorLoad(UOp value);

bool DependsOn(UOp u, UOp range);

// The one REDUCE in a value: the sum over `k` of products of an element that only `row` decides and
// one that only `column` does, both loaded.
struct RowProduct {
  UOp reduce, rows, columns, k;
};
std::optional<RowProduct> FindRowProduct(UOp value, UOp row, UOp column);

// REDUCE(add, MUL(f32 of LOAD a, f32 of LOAD b), k...), or with its factors in the other order,
// that is the kernel's only reduction. It is found by what the loads walk, whatever the kernel
// calls it: parallel ranges that a walks and b does not are rows, those of b alone columns, and all
// others, which both walk or neither, are a batch. So a convolution has pixels, channels of the
// output, and channels and taps of the window. Places in memory come from ranges alone, and so do
// gates, as those of a padded image: where one is false, the load gives 0.
struct Product {
  UOp reduce, a, b;
  RangeSet m = 0, n = 0, k = 0;  // none is empty
};

std::optional<Product> FindProduct(const KernelShape& shape);

// A product that reduces one range. Its rows and columns are the longest range of each; stores are
// neighbours along n if along either, or along m where StoresAlongRows. Several ranges may become
// one before (join.h).
struct Matmul {
  UOp reduce, a, b;
  UOp m, n, k;
};

std::optional<Matmul> FindMatmul(const KernelShape& shape);

// Where in a tile an element of a fragment lies, along the tile's range and along k: the sum of
// what only the lane decides, and of what the element does, a vector. Or, if `row` is valid, what
// LOAD_MATRIX needs: the first element of the matrix of 8 x 8 of which this lane names a row, and
// the number of that row; there are no vectors then.
struct FragmentPlace {
  UOp scalar_t = {}, vector_t = {}, scalar_k = {}, vector_k = {}, row = {};
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
  const MmaInfo& info() const { return AllMmas()[static_cast<size_t>(kind)]; }
};

// A REDUCE(add) of an MMA with the fragment `zero` for its c is expanded into MMAs that add to the
// accumulator. nullopt if there is no such instruction.
std::optional<Fragments> FragmentsFor(Rewriter& b, MatrixUnit unit, DType dtype, int64_t columns,
                                      int64_t range_id);

}  // namespace telegrad
