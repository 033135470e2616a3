// Reductions over a row of scores that belong together: its maximum, the sum of exponentials less
// the maximum, and sums of values that these weight.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/lowering/substitute.h"

namespace telegrad {

// A sum of values by weights.
struct WeightedSum {
  UOp memory;             // what stands for its accumulators
  UOp value;              // at the row and the key of the scores, and at `kept`
  std::vector<UOp> kept;  // loops that it depends on inside of the shared ones, outermost first
  UOp row;                // that of them which is the row; invalid where there is one row
  DType dtype = DType::kVoid;
  bool hides_rows = false;  // the weights of a row are 0 where its maximum is -inf
};

// Expressions are at `row` and at the key that `key`, or `blocks` and `key`, number. These ranges
// stand for those of all nests.
struct CoupledSums {
  UOp row;                         // invalid where there is one row
  UOp blocks, key;                 // no blocks: the loops over keys are not split yet
  std::vector<UOp> shared;         // loops in each iteration of which private memory is another
  UOp scores;                      // what is stored in it
  std::vector<UOp> loops;          // in which it is, inside of the shared ones
  UOp score;                       // the LOAD of a score
  UOp element;                     // whose maximum is taken: computed from the score
  UOp maximum_memory, sum_memory;  // what stands for the maxima and the sums of the rows
  UOp maximum;                     // the LOAD of the row's maximum
  UOp shift;                       // which is subtracted: the maximum, or what takes its place
  UOp scale;                       // of the difference; invalid: none
  std::vector<WeightedSum> sums;
  // Roots that write arguments, with loads of the memory above in place of the reductions.
  std::vector<UOp> roots;
  int64_t next_range = 0;  // a number that no range has

  int64_t rows() const;
};

// nullopt where the kernel has no such reductions, or does something else with the scores.
std::optional<CoupledSums> MatchCoupledSums(Rewriter& b, UOp sink);

}  // namespace telegrad
