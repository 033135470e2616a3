// Random tensor graphs for differential tests: every op of the tensor level, small shapes, values
// that keep float results comparable.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad::testing {

struct RandomGraph {
  UOp sink;
  std::vector<std::vector<uint8_t>> slots;  // initial contents, by slot
  std::vector<DType> dtypes;
};

// A graph of about `size` nodes in `graph`, the same for the same state of `rng`.
RandomGraph MakeRandomGraph(std::mt19937_64& rng, int size, Graph* graph);

}  // namespace telegrad::testing
