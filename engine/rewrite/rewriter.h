// The rule interpreter at work on a graph.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

class RuleTable;
struct Rule;

// What a scalar replacement of a shaped value becomes.
enum class Shapes {
  kExact,      // it is expanded to the shape (tensor level: every consumer sees the same shape)
  kBroadcast,  // it stays a scalar: elementwise consumers broadcast it
};

// Builds nodes that are simplified as they are made: Make applies the tables at the new node until
// no rule matches, so an expression that is built bottom-up needs no sweep afterwards. Results are
// memoized for the rewriter's lifetime. Errors and spent budgets are sticky in the graph's status.
class Rewriter {
 public:
  Rewriter(Graph* graph, std::span<const RuleTable* const> tables, Budget* budget,
           Shapes shapes = Shapes::kBroadcast);
  Rewriter(Graph* graph, std::initializer_list<const RuleTable*> tables, Budget* budget,
           Shapes shapes = Shapes::kBroadcast)
      : Rewriter(graph, std::span(tables.begin(), tables.size()), budget, shapes) {}

  UOp Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg = {});
  UOp Make(Op op, DType dtype, std::initializer_list<UOp> src,
           std::initializer_list<int64_t> arg = {}) {
    return Make(op, dtype, std::span(src.begin(), src.size()), std::span(arg.begin(), arg.size()));
  }
  UOp Make(Op op, std::initializer_list<UOp> src) { return Make(op, DType::kVoid, src); }

  // Simplifies everything that `root` depends on, sources first, and returns the new root.
  UOp Rewrite(UOp root);

  Graph* graph() { return graph_; }

  // `u`, which replaces `old`, with the shape that `old`'s consumers expect; invalid where it has
  // none.
  UOp WithShapeOf(UOp u, UOp old);

  // How often a row has matched; 0 for a row of another table.
  int64_t Hits(const Rule& rule) const;
  // The rows that have matched, most frequent first: table, line, count and text of each.
  std::string HitReport() const;

 private:
  struct Row {
    const Rule* rule;
    const RuleTable* table;
    int64_t hits;
  };

  UOp Simplify(UOp u);
  UOp Step(UOp u);  // the first rule that matches, or invalid
  bool Spend();

  Graph* graph_;
  Budget* budget_;
  Shapes shapes_;
  int depth_ = 0;
  bool failed_ = false;
  std::vector<Row> rows_;  // in priority order
  // Bitsets over rows_: by root op, and by the op of each of the first three sources.
  int words_ = 0;
  std::vector<uint64_t> root_;
  std::vector<uint64_t> child_[3];
  NodeMap<uint32_t> memo_;  // the simplified node, or kNone
};

}  // namespace telegrad
