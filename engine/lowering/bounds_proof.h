// The bounds proof: an independent look at the final linear program. It trusts nothing that was
// simplified before; it only reads INDEX nodes, their gates, and the sizes of buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Whether every element that the INDEX `address` names while its gate holds lies inside its buffer.
// `work`, if any, is raised by the forms that were bounded for it.
bool ProveInside(UOp address, int64_t* work = nullptr);

// The accesses of a program's arguments, by how they are kept inside. Those of its own registers
// are left out: they are always proved and would only flatter the figures.
struct BoundsStats {
  int64_t proved = 0;
  int64_t gated = 0;           // statically indexed, yet a run-time gate was added
  int64_t data_dependent = 0;  // the index is computed from loaded values: always gated

  BoundsStats& operator+=(const BoundsStats& other);
};

struct BoundsReport {
  std::vector<UOp> unproved;  // INDEX nodes for which ProveInside does not hold
  BoundsStats stats;          // as they are once every one of those is gated
};

// A step of the budget for each node and each form that is bounded: its error, before all is
// proved.
absl::StatusOr<BoundsReport> ProveBounds(const Graph& graph, const std::vector<uint32_t>& order,
                                         Budget* budget);

}  // namespace telegrad
