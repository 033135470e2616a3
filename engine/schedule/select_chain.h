// where(m2, v2, where(m1, v1, where(m0, v0, base))): what a client spells that writes one row after
// another.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Tensors that are the same views of parts of one tensor, each part `step` further along an axis
// than the one before; or all the same tensor.
struct Slices {
  UOp first;
  std::vector<UOp> views;  // from `first` down to what `shrink` gives
  UOp shrink;              // of the first part; invalid: all are `first`
  size_t axis = 0;
  int64_t step = 0;
};
std::optional<Slices> FindSlices(const std::vector<UOp>& tensors);

struct SelectChain {
  Slices masks, values;  // first what is written first
  int64_t length = 0;
  Shape dims;  // of every link
  UOp base;    // of the same elements, or a scalar
};

// Finds the chains that end at a WHERE of a graph and go no further.
class SelectChains {
 public:
  SelectChains(const Graph& graph, const std::vector<uint32_t>& order);

  // Each link is looked at once, when all WHEREs are asked for.
  absl::StatusOr<std::optional<SelectChain>> At(UOp where, Budget* budget) const;

 private:
  // The WHEREs from `top` on, through their last sources; too few or too many users: empty.
  std::vector<UOp> Links(UOp top) const;
  // What `u`, which has one user, is a reshape of, if that has one user too; else `u`.
  UOp ThroughReshapes(UOp u) const;

  std::vector<uint32_t> users_;  // by node
  std::vector<bool> goes_on_;    // the WHERE is a link in the middle
};

}  // namespace telegrad
