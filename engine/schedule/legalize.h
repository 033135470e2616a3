// A tensor graph as clients send it becomes a smaller language that kernels speak: no functions, no
// variables, one instance of every value, no packed types, no bitcasts that change the width. What
// is left says the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/collectives.h"
#include "engine/types/var_value.h"

namespace telegrad {

// Where a graph's device numbers are.
struct Placement {
  std::vector<int64_t> device_of;  // by number; below 0: nowhere
  AllReduceAlgorithm all_reduce = AllReduceAlgorithm::kBySize;
};

// `sink` is the root of a verified tensor graph; `variables` name each id once, in any order, and
// hold the value of every VAR without a source. The result has the same slots; one of a packed type
// is one of u8, with the bytes of its elements.
//
// INVALID_ARGUMENT: a variable is missing, unknown, outside of its bounds or no multiple, or with
// these values a size does not fit.
// RESOURCE_EXHAUSTED: calls, loops and instances make the graph grow by more than kMaxNodes.
//
// Without a placement everything is on device 0, a COPY is memory that its instances share. With
// one, each value is on one of its devices or anywhere, and a COPY to one device is where it
// changes; INVALID_ARGUMENT where the graph names a device that is nowhere.
absl::StatusOr<FrozenGraph> Legalize(UOp sink, std::span<const VarValue> variables, Budget* budget,
                                     const Placement* placement = nullptr);

// The same with a placement, for all values of the variables: they stay, as do the sizes that are
// computed from them, and what is of such sizes is as the client wrote it. A loop runs up to its
// bound. UNIMPLEMENTED: this graph has no such form, because a value of a packed type has a size of
// the run, because variables decide how often a loop runs and its bound is much more than what runs
// may need, or because with loops up to their bounds it would be too large.
absl::StatusOr<FrozenGraph> LegalizeForAll(UOp sink, const Placement& placement, Budget* budget);

}  // namespace telegrad
