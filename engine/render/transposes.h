// Loads that together read a square of memory: as many vectors as each has lanes, whose lanes are
// rows apart and which are neighbours in each row. Read row by row they are contiguous vectors.
#pragma once

#include <vector>

#include "engine/ir/program.h"

namespace telegrad {

// The loads of a square in the order of their elements. They stand in the same iteration of the
// same loop, have no gate, and read an argument that the program does not write: all of it can be
// read where the first of them stands.
using Transpose = std::vector<UOp>;

// Only squares of at most `vector_bytes` a row, and rows at least `distance` elements apart.
std::vector<Transpose> FindTransposes(const Program& program, int64_t vector_bytes,
                                      int64_t distance);

}  // namespace telegrad
