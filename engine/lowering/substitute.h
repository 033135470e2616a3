// Rebuilds a graph with some nodes replaced.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// What a node becomes. A range becomes an expression where its value is used, and ranges where it
// is closed.
struct Replacement {
  UOp value;
  std::vector<UOp> ranges;
};

using Replacements = absl::flat_hash_map<uint32_t, Replacement>;  // by node id

UOp Substitute(Rewriter& b, UOp root, const Replacements& with);

}  // namespace telegrad
