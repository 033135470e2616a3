// Comparisons of positions as sums: what a limit of a loop is computed from.
#pragma once

#include <cstdint>
#include <map>

#include "engine/ir/graph.h"

namespace telegrad {

// constant + the sum of nodes times coefficients, over the integers: nothing in it wraps.
struct PositionForm {
  int64_t constant = 0;
  std::map<uint32_t, int64_t> terms;  // by node id

  // this += times * u; false where that may wrap, or where there is too much of it.
  [[nodiscard]] bool Add(UOp u, int64_t times);
  bool operator==(const PositionForm& other) const = default;
};

// `u` as an i64.
UOp AsIndex(Graph& g, UOp u);

}  // namespace telegrad
