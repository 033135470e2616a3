// Loads or stores that together are a rectangle of memory: vectors that are neighbours, and whose
// lanes are rows apart. Row by row they are contiguous.
#pragma once

#include <vector>

#include "engine/ir/program.h"

namespace telegrad {

// The loads, or the stores, of a rectangle in the order of their elements: at least kLeastRow, at
// most as many as each has lanes. They stand in the same iteration of the same loop, have no gate,
// and access an argument. All loads can be done where the first of them stands, all stores where
// the last one does.
using Transpose = std::vector<UOp>;

inline constexpr int64_t kLeastRow = 4;

// Of vectors of at most `vector_bytes`, rows at least `distance` elements apart. Rows shorter than
// a vector only where `partial`, and of elements of at least 4 bytes: the rest of the vector is
// masked.
std::vector<Transpose> FindTransposes(const Program& program, int64_t vector_bytes,
                                      int64_t distance, bool partial);

}  // namespace telegrad
