// Loads or stores that together are a rectangle of memory: vectors that are neighbours, and whose
// lanes are rows apart. Row by row they are contiguous.
#pragma once

#include <vector>

#include "engine/ir/program.h"
#include "engine/types/target.h"

namespace telegrad {

// The loads, or the stores, of a rectangle in the order of their elements: at least kLeastRow, at
// most as many as each has lanes. They stand in the same iteration of the same loop, have no gate,
// and access an argument. All loads can be done where the first of them stands, all stores where
// the last one does.
using Transpose = std::vector<UOp>;

// Rows are at least `distance` elements apart, and shorter than a vector only where the target
// masks them.
std::vector<Transpose> FindTransposes(const Program& program, const Target& target,
                                      int64_t distance);

}  // namespace telegrad
