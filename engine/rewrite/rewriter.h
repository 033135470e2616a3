// The rule interpreter at work on a graph.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

class RuleTable;

// Builds nodes that are simplified as they are made: Make applies the tables at the new node until no rule
// matches, so an expression that is built bottom-up needs no sweep afterwards. Results are memoized for the
// rewriter's lifetime. Errors and spent budgets are sticky in the graph's status.
class Rewriter {
 public:
  Rewriter(Graph* graph, std::span<const RuleTable* const> tables, Budget* budget);

  UOp Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg = {});
  UOp Make(Op op, DType dtype, std::initializer_list<UOp> src,
           std::initializer_list<int64_t> arg = {}) {
    return Make(op, dtype, std::span(src.begin(), src.size()), std::span(arg.begin(), arg.size()));
  }
  UOp Make(Op op, std::initializer_list<UOp> src) { return Make(op, DType::kVoid, src); }

  // Simplifies everything that `root` depends on, sources first, and returns the new root.
  UOp Rewrite(UOp root);

  Graph* graph() { return graph_; }
};

}  // namespace telegrad
