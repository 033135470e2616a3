// Values that are computed again where they are reduced, a few rows at a time, and not kept.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/fusion.h"
#include "engine/types/machine_costs.h"

namespace telegrad {

struct RecomputedRows {
  FrozenGraph graph;
  // CONTIGUOUS nodes of the graph: of these the kernel that reduces them keeps a few rows at a
  // time. None: the graph is as it was.
  absl::flat_hash_map<uint32_t, KeptRows> rows;
  // Other values that are worth computing again only if none of them is in memory.
  absl::flat_hash_set<uint32_t> blocks;
  // Their maxima and sums, which each nest of a kernel computes as it needs them: lowering computes
  // them once (engine/lowering/online.h).
  absl::flat_hash_set<uint32_t> fused;
  // And CONTIGUOUS nodes that store these for other kernels.
  absl::flat_hash_set<uint32_t> statistics;
};

// Which kernel computes the maxima and sums of rows that several need: the one that has the values
// as they were, or one that does nothing else.
enum class RowStatistics : uint8_t { kWithResult, kAlone };

// Where several kernels reduce what is made of a sum of products with more elements than its
// operands (row_regions.h), as the gradients of an attention do its scores, and multiplying again
// takes less than memory for all of it, each of these kernels gets the sum as its own. `graph` is
// legalized; a thread may keep `private_bytes` for itself. `row_blocks` as in FusionOptions.
absl::StatusOr<RecomputedRows> RecomputeRows(FrozenGraph graph, const ScheduleCosts& costs,
                                             int64_t private_bytes, bool row_blocks,
                                             RowStatistics statistics, Budget* budget);

}  // namespace telegrad
