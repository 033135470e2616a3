// How large the tiles of a matrix product are that a workgroup computes, and what a product in such
// tiles costs. The schedule divides products by it, and the lowering chooses their tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/op.h"
#include "engine/types/machine_costs.h"
#include "engine/types/target.h"

namespace telegrad {

// The unit's instruction for operands of that type with f32 sums and as many columns; of 0, the one
// with the most. nullopt if there is none.
std::optional<MmaKind> MmaFor(MatrixUnit unit, DType dtype, int64_t columns = 0);

// Whether what a lane has of the unit's results for operands of that type are neighbours along m:
// stored along m, they are vectors.
bool StoresAlongRows(MatrixUnit unit, DType dtype);

// The unit's instruction of a warp for operands of that type whose matrices all are squares, so
// that a result may be the next one's operand; nullopt if there is none.
std::optional<MmaKind> SquareMmaFor(MatrixUnit unit, DType dtype);

// Rows of scores of an attention that a warp has; a workgroup has a multiple of them. Those of a
// square matrix instruction, or where the target has none the square of WarpElements: then of a
// tile as many threads lie along the rows as each has elements there.
int64_t WarpRows(const Target& target);
// f32 of one access of a thread: elements of a tile that it has along rows, and along columns.
int64_t WarpElements(const Target& target);

struct ProductSizes {
  int64_t m, n, k;
  double batch;  // products
  DType dtype;   // of the operands
};

// The tile of the target's row, turned where stores are along rows, with the least cost, of those
// that are not much larger than the product, or skinny; a single instruction's where all are.
// nullopt: the product is smaller than that, or the target has neither local memory that is worth
// copying to nor, for 16-bit floats, an instruction.
std::optional<ProductTile> PickTile(const ProductSizes& sizes, const Target& target);
// All tiles that PickTile chooses among, by their costs.
std::vector<ProductTile> RankTiles(const ProductSizes& sizes, const Target& target);

// The instruction for such a tile of the target: the one with the most columns that divide the
// tile's. nullopt: there is none.
std::optional<MmaKind> MmaOfTile(const ProductTile& tile, DType dtype, const Target& target);

// Elements of local memory that the tile's operands take, rows' gaps included.
int64_t PanelElements(int64_t rows, int64_t columns, int64_t k, const Target& target);

// In products of one thread, with what the tiles compute beyond the sizes. `scattered`: stores are
// not of whole vectors.
double CostOfProduct(const ProductSizes& sizes, const ProductTile& tile, bool scattered,
                     const Target& target);

// Of storing `parts` partial results for each of so many, and of a kernel that adds them up, in the
// same unit.
double CostOfParts(double results, int64_t parts, const Target& target);

}  // namespace telegrad
