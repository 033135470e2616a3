// From a scheduled kernel to a linear program for a target.
#pragma once

#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/rewrite/pass.h"
#include "engine/types/target.h"

namespace telegrad {

// What lowering says of a kernel besides its program.
struct LoweringReport {
  BoundsStats bounds;   // how the program's accesses are kept inside
  std::string refused;  // the error of the first program, if it was refused and another one made
};

// Lists of moves with less that is parallel than one that is refused, the fastest ones first, which
// Lower tries: without rings of tiles, then without tiles that threads share, then without a loop
// that threads share, at last without any move.
std::vector<std::string> SaferLists(const std::string& refused);

// `kernel` is as the schedule makes it:
//
//   SINK(root, ...)       a root is a nest: STORE, or END(nest, ranges...), outermost range first
//   STORE(INDEX(PARAM s, index[, gate]), value)
//
// All roots close the same outermost ranges: they are one loop nest with several stores, of which
// some may be in further loops. A value holds any number of REDUCEs, beside or inside of each
// other, and each is computed once for every value of the ranges that it depends on: one that does
// not depend on a loop's range is done before that loop. REDUCEs over the same range are one
// loop where equally many others stand below each of them. What a nest reads of what an earlier one
// of the same outer iteration wrote, it reads from AFTER(PARAM t, nest over inner ranges); the
// outermost ranges, on which all such nests depend, are then the only ones that are sliced over
// threads.
//
// Where parallel iterations of the program are not proved independent, the kernel is lowered again
// with less that is parallel, the first of these that is proved: without a ring of tiles, without
// tiles in memory that threads share, without a loop that threads share, and without any move, at
// last not even with reductions of rows in one loop. A list of moves that `options` gives is not
// replaced: FAILED_PRECONDITION names the accesses. INTERNAL: no program of the kernel is proved.
//
// Adds to `report`, if given. Tests verify and dump after every pass through `options`.
absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, LoweringReport* report = nullptr,
                              const PassOptions& options = {});

}  // namespace telegrad
