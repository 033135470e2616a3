// Which elements of a tile of a matrix each thread of a warp has, as nests that follow each other
// share them.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/op.h"
#include "engine/types/machine_costs.h"
#include "engine/types/target.h"

namespace telegrad {

// A digit of the number of a thread in its warp, or of its element in a tile of a warp's rows.
struct TileDigit {
  bool row;  // along the rows, else along the columns
  int64_t size, stride;
};

struct TileLayout {
  int64_t tile_rows = 0, columns = 0;                  // of a warp's tile
  std::vector<TileDigit> threads = {}, elements = {};  // the lowest first

  int64_t size() const;  // elements of a thread,
  int64_t rows() const;  // and how many rows these are in
};

// Of registers alone: a thread has a square of elements, so that a term of a sum is two short
// vectors, and as many threads lie along the rows.
TileLayout LayoutWithoutInstruction(const Target& target);

// A matrix instruction of two products, of which the first one's results are, as threads have them,
// an operand of the second.
struct TileInstruction {
  MmaKind kind;
  bool turned;  // rows are the instruction's columns
  TileLayout layout;
  const MmaInfo& info() const { return AllMmas()[static_cast<size_t>(kind)]; }
};

// By the rows FRAGMENT of engine/ir/mma.def; nullopt where the target has none for the type.
std::optional<TileInstruction> TileInstructionFor(const Target& target, DType dtype);

}  // namespace telegrad
