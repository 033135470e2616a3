// Which values of a tensor graph are put into memory, and why. Everything else is recomputed where
// it is used, inside the kernels of its users.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Why a value is materialized; kFused: it is not.
enum class Materialize : uint8_t {
  kFused,
  kRequested,    // CONTIGUOUS
  kReduceReuse,  // holds a reduction and is needed more than once, or inside another reduction
  kSize,         // its kernel would grow without bound
  kCost,         // recomputing it would cost more than a store and the loads
  kScatter,      // written in place, row by row
};

std::string_view Name(Materialize reason);

struct FusionPlan {
  std::vector<uint32_t> order;        // post-order of the graph
  std::vector<Materialize> decision;  // by node id
  bool materialized(uint32_t id) const { return decision[id] != Materialize::kFused; }
};

// `sink` is the root of a verified tensor graph.
absl::StatusOr<FusionPlan> PlanFusion(UOp sink, Budget* budget);

}  // namespace telegrad
