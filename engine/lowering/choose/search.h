// BEAM search for a kernel's moves, by measuring programs on the device that will run them.
//
// It begins with what the cost model thinks best, the heuristic's list among it. In each round it
// edits the lists that were fastest so far (candidates.h), lowers and measures the results, and
// keeps the fastest again, until a round finds nothing better or a limit is reached. At the end the
// best list and the heuristic's are measured again in turns: what the search returns as better was
// faster in both.
//
// A list only changes the order in which floating-point sums are added: see docs/search.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/lowering/choose/measure.h"
#include "engine/lowering/moves/move.h"
#include "engine/types/target.h"

namespace telegrad {

struct SearchProgress {
  int round = 0;
  int measured = 0;  // programs
  double heuristic_seconds = 0;
  double best_seconds = 0;
  const MoveList* best = nullptr;
};

struct SearchOptions {
  double seconds = 60;       // of time; when they are over, what has been found counts
  int most_measured = 1000;  // programs, however much time is left
  int width = 3;             // lists that are kept from one round to the next
  int first = 12;            // lists that the cost model proposes
  int neighbours = 20;       // of each kept list that are measured in a round
  double least_gain = 0.03;  // of the time, below which a list is not worth while
  std::function<void(const SearchProgress&)> progress = {};
};

struct SearchResult {
  MoveList heuristic, best;  // the same where nothing better was found
  double heuristic_seconds = 0, best_seconds = 0;
  int measured = 0, refused = 0;  // programs; lists that could not be compiled, run or shared
  int rounds = 0;
  bool improved() const { return best != heuristic; }
};

// `kernel` as the schedule makes it. Errors: CANCELLED and DEADLINE_EXCEEDED of the budget, and
// those of the heuristic's own program. The work of lowering is charged to the budget's share; each
// list has the limits of the budget for itself.
absl::StatusOr<SearchResult> SearchMoves(const FrozenGraph& kernel, const Target& target,
                                         std::span<const int32_t> weights, Measure& measure,
                                         const SearchOptions& options, Budget* budget);

}  // namespace telegrad
