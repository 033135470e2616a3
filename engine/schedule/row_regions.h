// Values of a graph that are as large as the product of the lengths of two operands and are only
// reduced again, as the scores of an attention and what its gradients make of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/graph.h"
#include "engine/schedule/access.h"
#include "engine/types/machine_costs.h"

namespace telegrad {

// A REDUCE of a value of a region: of the value itself, or a sum of its products with another
// value.
struct RegionUse {
  uint32_t reduce = 0;
  uint32_t value = 0;
  bool product = false;
  RangeSet reduced = 0;  // of the ranges of what is reduced, as LoopAccess numbers them
  // Of the value, and of all that it is computed from in the region: a permutation of the ranges.
  absl::flat_hash_map<uint32_t, Access> access = {};
};

struct RowRegion {
  std::vector<uint32_t> sums;   // the sums of products that are larger than their operands
  std::vector<uint32_t> nodes;  // computed from them element by element, and they; a post-order
  std::vector<RegionUse> uses;  // in post-order
};

// `order`: a post-order of a legalized graph. Regions of which something else than a REDUCE uses a
// value are left out, and so are those without a sum of products among their uses.
std::vector<RowRegion> FindRowRegions(const Graph& graph, std::span<const uint32_t> order,
                                      const ScheduleCosts& costs);

}  // namespace telegrad
