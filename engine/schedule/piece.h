// Views that are a piece of memory: what they show lies together, in the order in which they show
// it, so that copying bytes moves it. Memory of a value with symbolic sizes has room for their
// bounds, and a piece does too.
#pragma once

#include <cstdint>

#include "engine/ir/graph.h"

namespace telegrad {

// `view` is a movement op. At which element of its source's row-major order the piece begins that
// it shows; below 0 if it shows no single piece.
int64_t PieceOffset(UOp view);

}  // namespace telegrad
