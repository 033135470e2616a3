// What an index expression does with one range.
#pragma once

#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// The ranges of a graph below a root, and for each node the set of ranges that it depends on, as
// bits in the order of `ranges`. A REDUCE or END closes its ranges: it does not depend on them.
struct Dependence {
  std::vector<UOp> ranges;
  std::vector<uint64_t> of;  // by node id
  int IndexOf(UOp range) const;
  bool Depends(UOp node, UOp range) const;
};

inline constexpr int kMaxRanges = 64;

// nullopt when there are more than kMaxRanges ranges.
std::optional<Dependence> FindDependence(UOp root);

// c where index(range + 1) - index(range) = c for every value of every range; nullopt if not
// constant.
std::optional<int64_t> StrideOf(UOp index, UOp range);

}  // namespace telegrad
