// How many elements a shape has, where sizes are computed from variables: a polynomial over the
// nodes that are neither a constant nor a sum, difference, negation or product of others. Two
// shapes with the same polynomial have the same number of elements for every value of the
// variables.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad::internal {

// The coefficient of each monomial, which is the sorted ids of its factors; none is 0.
using SymbolicSize = std::map<std::vector<uint32_t>, int64_t>;

struct SizeFactor {
  int64_t value;  // of a size that is a number
  UOp node;       // of a symbolic size; else invalid
};

// Their product. Bounded: INVALID_ARGUMENT for polynomials of more terms or factors than sizes
// need.
absl::StatusOr<SymbolicSize> MultiplySizes(std::span<const SizeFactor> sizes);

}  // namespace telegrad::internal
