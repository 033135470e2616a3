// Rebuilds a graph with some nodes replaced.
#pragma once

#include <functional>
#include <span>
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

// The number of an iteration of `ranges`, row by row: neighbours along the last one follow each
// other.
UOp RowMajor(Rewriter& b, std::span<const UOp> ranges);

// Makes every node below `root` again, sources first: `make` gives what a node becomes with these
// sources, which it may change. Nothing is simplified. Invalid where the graph has an error.
UOp Rebuild(Graph& g, UOp root, const std::function<UOp(UOp u, std::vector<UOp>* src)>& make);

// `u` with other sources, if they are.
UOp WithSources(Graph& g, UOp u, std::span<const UOp> src);

}  // namespace telegrad
