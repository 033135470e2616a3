// Over which blocks of keys the threads of a workgroup go, for a softmax of which a mask hides
// keys.
#pragma once

#include <vector>

#include "engine/lowering/online_match.h"
#include "engine/types/target.h"

namespace telegrad {

struct BlockWalk {
  const CoupledSums& sums;
  UOp value;                        // the LOAD that is weighted; invalid: it is computed otherwise
  UOp channel;                      // the range of the sums beside their rows
  const std::vector<UOp>& threads;  // outermost first
  int64_t block;                    // keys
};

// How many blocks have a key that comparisons of positions, with each other or with numbers of the
// run, show to some of the rows: a number that is the same for all threads. All blocks, if a value
// that they hide is no finite number, because 0 times that is none either; where the same
// comparison makes the value 0, too, that does not matter.
UOp BlocksShown(Rewriter& b, const Target& target, const BlockWalk& walk, int64_t* next_range);

// The number of keys of which some row sees one, at most, whatever the values are; invalid: all. It
// depends on nothing but loops around all threads and numbers of the run.
UOp KeysShown(Rewriter& b, const CoupledSums& sums);

}  // namespace telegrad
