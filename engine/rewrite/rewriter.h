// The rule interpreter at work on a graph.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

class RewriteObserver;
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

  // Reports every row that is tried from now on to `observer`, unless it is null, and times one try
  // in kTriesPerSample.
  static constexpr int kTriesPerSample = 61;
  void Observe(RewriteObserver* observer) { observer_ = observer; }

  // `u`, which replaces `old`, with the shape that `old`'s consumers expect; invalid where it has
  // none.
  UOp WithShapeOf(UOp u, UOp old);

 private:
  struct Row {
    const Rule* rule;
    const RuleTable* table;
    uint32_t orders;
  };

  // For each op the bitset of the rows that admit it at one place.
  struct Column {
    void Reset(size_t n);
    void Admit(size_t row, std::optional<Op> op);  // nullopt: any, see SpreadAny
    void SpreadAny(bool only_alu = false);
    const uint64_t* Of(Op op) const { return bits.data() + static_cast<size_t>(op) * words; }
    size_t words = 0;
    std::vector<uint64_t> bits;
    std::vector<uint64_t> any;  // rows that admit every op
  };

  UOp Simplify(UOp u);
  UOp SimplifyNew(UOp u);  // one that the memo does not have
  // The replacement by the first rule that matches, or invalid.
  UOp Step(UOp u);
  UOp Try(const Row& row, UOp u);  // and tell the observer
  bool Spend();

  Graph* graph_;
  Budget* budget_;
  Shapes shapes_;
  int depth_ = 0;
  bool failed_ = false;
  std::vector<Row> rows_;       // in priority order
  size_t words_ = 0;            // of a bitset over rows_
  Column root_;                 // by root op
  Column straight_[3];          // by the op of each of the first three sources
  Column swapped_[2];           // the same for rows that commute, met in the other order
  std::vector<uint64_t> type_;  // by element type
  NodeMap<uint32_t> memo_;      // the simplified node, or kNone

  RewriteObserver* observer_ = nullptr;
  uint32_t until_timed_ = 1;                    // tries
  std::chrono::nanoseconds* nested_ = nullptr;  // of the try being timed: spent in other rewrites
};

}  // namespace telegrad
