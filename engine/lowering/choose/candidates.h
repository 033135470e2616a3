// Lists of moves worth trying, and what the cost model expects of them. The heuristic, which
// lowering follows unless it is given a list, is the first candidate: the one of the least
// predicted cost.
#pragma once

#include <vector>

#include "engine/lowering/choose/move_space.h"

namespace telegrad {

struct Candidate {
  MoveList moves;
  double cost = 0;  // by PredictCycles (engine/lowering/heuristic.h)
};

// At most `most`, the heuristic's first, then others of the same enumeration by their cost.
std::vector<Candidate> FirstCandidates(MoveSpace& space, size_t most);

// The lists that the kernel can have and that differ from `moves` in one decision: an amount, a
// range that is lanes or threads, the place of a loop, a move more or less. By their predicted
// cost; each once.
std::vector<Candidate> Neighbours(MoveSpace& space, const MoveList& moves);

}  // namespace telegrad
