// Splitting a range. Its iterations are those of an outer part, which counts tiles, and of the
// parts of a tile, from the outermost to the lanes:
//
//   range  =  ((outer * size 0 + part 0) * size 1 + part 1) * ...
//
//   outer   a loop; one that workers share (THREAD); workgroups (GROUP)
//   part    lanes (VECTORIZE), or iterations that `expand` replicates (UPCAST, UNROLL); a loop
//           (BLOCK); threads of the workgroup, which other ranges may have parts of, too (LOCAL);
//           the rows, columns or terms of a matrix instruction (TENSORCORE)
//
// Where a tile does not divide the size, Padding says whether the last one begins earlier, which
// changes the sum, or the size is rounded up.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/lowering/moves/move.h"
#include "engine/lowering/moves/padding.h"
#include "engine/lowering/substitute.h"

namespace telegrad {

// A move and its RANGE.
struct RangeMove {
  Move::Kind kind;
  UOp range;
  int64_t amount = 0;
  int axis = 0;
  int64_t ring = 1;
};

struct SplitRange {
  // What the moves say.
  UOp range;
  int64_t size = 0;
  std::vector<RangeMove> parts;                       // of a tile, outermost first
  int64_t tile = 1, count = 0;                        // iterations of a tile, and tiles
  bool group = false, thread = false, block = false;  // what the outer part is
  bool staged = false;                                // `within` is needed

  // What that makes of the range.
  UOp outer;         // the outer part; 0 where there is one tile
  UOp within;        // the sum of the other parts, of an instruction's its first element
  Replacement with;  // the sum of all, and those that are ranges, outermost first
  // Of a range that is rounded up: `range` < size, which always holds until the range is replaced,
  // and what that becomes. Else invalid.
  UOp inside, inside_with;
};

// One for each range that a move names, in the order in which moves do.
std::vector<SplitRange> PlanSplits(const std::vector<RangeMove>& moves);

// What several ranges have parts of: workgroups and their threads, which the whole kernel is inside
// of.
struct Parallel {
  std::vector<UOp> ranges;                              // outermost first
  std::array<UOp, kMaxThreadAxes> threads;              // by axis; invalid: there are none
  absl::flat_hash_map<uint32_t, UOp> groups;            // by range: its outer part
  absl::flat_hash_map<uint32_t, UOp> rows_and_columns;  // by range: where in an instruction's tile
};

// The workgroups and threads of these splits. *next_id is a free number for a RANGE.
absl::StatusOr<Parallel> MakeParallel(Rewriter& b, const std::vector<SplitRange>& splits,
                                      const std::vector<RangeMove>& moves, const Target& target,
                                      int64_t* next_id);

// Makes the parts of a planned split. `once`: no element may be computed twice.
absl::Status MakeParts(Rewriter& b, const Parallel& parallel, const Padding& padding, bool once,
                       int64_t* next_id, SplitRange* split);

}  // namespace telegrad
