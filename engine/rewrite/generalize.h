// One form of a graph for all values of its variables: what a run decides is read from memory,
// every size is its upper bound, and what lies beyond the sizes of the run is masked where it would
// count. Lowering ends loops where such masks hide the rest, so the work follows the values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// A variable that a run gives, and what this form allows: multiples of `multiple` from `min` to
// `max`.
struct VarRange {
  int64_t id = 0;
  int64_t min = 0;
  int64_t max = 0;
  int64_t multiple = 1;
  friend auto operator<=>(const VarRange&, const VarRange&) = default;
};

// The variables of a verified tensor graph without a source, by id, with the values that they are
// declared to allow.
std::vector<VarRange> RangesOf(UOp sink);

// The ids of those that a size, or how often a LOOP runs, depends on.
std::vector<int64_t> SizesOf(UOp sink);

struct GeneralForm {
  FrozenGraph graph;  // no variable without a source, no symbolic size
  int64_t slot = 0;   // an i64 for each of `ranges`, in their order: the values of the run
};

// `ranges` are those of RangesOf or within them. The values that a run puts into the slot must be
// in them too; memory is safe whatever they are.
//
// An error says what this form cannot express; then the graph is to be specialized.
absl::StatusOr<GeneralForm> Generalize(UOp sink, std::span<const VarRange> ranges, Budget* budget);

}  // namespace telegrad
