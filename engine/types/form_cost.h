// What runs of a graph with variables are predicted to take, where one compiled form is for many
// values.
#pragma once

#include <cstdint>
#include <vector>

namespace telegrad {

// Multiples of `multiple` from `min` to `max`, of the variable with that id.
struct VarBounds {
  int64_t id = 0;
  int64_t min = 0;
  int64_t max = 0;
  int64_t multiple = 1;
};

// Of the values within `bounds`, which are by id: with the greatest a run takes `greatest`, with
// the least `least_share` of that.
template <typename Cost>
struct FormCost {
  std::vector<VarBounds> bounds;
  Cost greatest = {};
  double least_share = 1;
};

}  // namespace telegrad
