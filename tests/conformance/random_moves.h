// Random lists of moves that a kernel can have, whether or not they make sense.
#pragma once

#include <cstdint>
#include <random>

#include "engine/base/status.h"
#include "engine/lowering/choose/move_space.h"

namespace telegrad::testing {

struct RandomMoveCounts {
  int64_t lists = 0, moves = 0, refused = 0;
};

// A list that Apply accepts, move by move; others that it refused are counted.
absl::StatusOr<MoveList> RandomMoves(MoveSpace& space, std::mt19937_64& rng,
                                     RandomMoveCounts* counts);

}  // namespace telegrad::testing
