// Values that a kernel needs a block of each row of at a time.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct ScoreRow {
  int64_t elements = 0;  // of each row
  uint32_t softmax = 0;  // the same of the scores and the weights of one softmax
};
using ScoreRows = absl::flat_hash_map<uint32_t, ScoreRow>;  // by value

// Of the values of `stored`, which are in memory, in the graph whose post-order is `order`: those
// that are scores of which a softmax is taken to weight a sum, and the weights. Where they are
// private to a kernel, lowering reduces the rows in blocks (engine/lowering/online.h), and the
// kernel has no memory for more. These are fewer than lowering knows: what is left out is kept
// whole.
ScoreRows FindScoreRows(const Graph& graph, std::span<const uint32_t> order,
                        const absl::flat_hash_set<uint32_t>& stored);

}  // namespace telegrad
