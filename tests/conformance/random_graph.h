// Random tensor graphs for differential tests: small shapes, every op and dtype of the tensor
// level, and a note of which results every way of running must give bit for bit.
//
// A value is exact where ops.def leaves no freedom: neither ulp nor the order of a float sum are in
// it. What is not exact goes only where a small difference stays small: never into a comparison, an
// integer, a bit pattern or a product.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/types/var_value.h"

namespace telegrad::testing {

struct RandomGraph {
  UOp sink;
  std::vector<std::vector<uint8_t>> slots;  // initial contents, by slot
  std::vector<DType> dtypes;
  std::vector<bool> exact;  // by slot: what it holds after a run
  std::vector<VarValue> variables;
};

enum class Vocabulary {
  kPlain,  // what a kernel says directly: no functions, variables, devices, emulated types
  kAll,    // every op of the tensor level, every dtype
};

// A graph of about `size` nodes in `graph`, the same for the same state of `rng`. It may be
// malformed (an invalid sink, or one that Verify refuses), if seldom.
RandomGraph MakeRandomGraph(std::mt19937_64& rng, int size, Graph* graph,
                            Vocabulary vocabulary = Vocabulary::kPlain);

// Those of `variables` that the graph of `sink` has: not of functions or views that nothing uses.
std::vector<VarValue> VariablesOf(UOp sink, std::span<const VarValue> variables);

}  // namespace telegrad::testing
