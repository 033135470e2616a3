// From a position in a tensor graph to the expression that computes it in a kernel. A position is
// (node, one index expression for each axis, validity); a movement op maps the position of its
// result to that of its source, so no view is ever stored. Positions are memoized: what is used
// twice at the same place is computed once.
//
// Validity is the condition under which the position lies inside every PAD passed so far. Loads
// carry it as their gate, because outside of it the index may be anything.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/budget.h"
#include "engine/ir/scalar.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/schedule/kernel_builder.h"
#include "engine/schedule/view_index.h"

namespace telegrad {

struct Position {
  uint32_t node;
  uint32_t valid;               // id of a bool node of the kernel graph
  std::vector<uint32_t> index;  // ids, one for each axis of the node

  friend bool operator==(const Position&, const Position&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Position& p) {
    return H::combine(std::move(h), p.node, p.valid, p.index);
  }
};

class Evaluator {
 public:
  // `level` as in KernelRequest.
  Evaluator(const Graph& tensor, const ReadFrom& read_from, std::span<const uint32_t> level,
            Budget* budget);

  Graph& graph() { return graph_; }
  Rewriter& rewriter() { return b_; }

  // The value at a position, evaluated with an explicit stack.
  absl::StatusOr<UOp> Evaluate(Position root);
  static Position At(uint32_t node, const Indices& index, UOp valid);

  // `nodes` are computed from now on, though others read them from memory.
  void Compute(absl::flat_hash_set<uint32_t> nodes) { computed_ = std::move(nodes); }
  bool computes(uint32_t node) const { return computed_.contains(node); }
  // Loads from `memory` see what `nest`, an END or STORE, has written.
  void Written(MemoryId memory, UOp nest) { written_.emplace(memory, nest); }
  // `memory` is the whole of `param`, a PARAM: accesses to both go through one argument, because
  // the compiler is told that different ones do not overlap where one of them is written.
  void LiesIn(MemoryId memory, uint32_t param) { lies_in_.emplace(memory, param); }

  // The outermost loops of the nest that is built. An iteration of the last one begins at row
  // `first`, and the nest goes through its `tile` rows for itself: row `row`, the `inner`th.
  struct Shared {
    std::vector<UOp> loops = {};
    int64_t tile = 1;
    UOp first = {}, row = {}, inner = {};
  };
  void Share(Shared shared) { shared_ = std::move(shared); }
  // Each iteration of the shared loops has `memory` for itself.
  void KeepPrivate(MemoryId memory) {
    private_.emplace(memory, static_cast<int64_t>(private_.size()));
  }

  // Of `node`'s value, which lies in `memory`.
  UOp Load(uint32_t node, MemoryId memory, const Indices& index, UOp valid);
  UOp WithinBounds(UOp computed, UOp load);
  // `after`: what has changed the memory, or ranges in each of whose iterations it may have
  // changed.
  UOp Address(MemoryId memory, UOp like, const Indices& index, UOp valid,
              std::span<const UOp> after = {});
  // An AFTER is a state of its PARAM's memory, the base of a SCATTER one of the SCATTER's; others
  // as LiesIn says.
  MemoryId Physical(MemoryId memory) const;
  UOp NewRange(AxisType type, int64_t size) {
    return size == 1 ? graph_.Index(0) : graph_.Range(next_range_++, type, graph_.Index(size));
  }

  // What the kernel's PARAMs stand for, by slot.
  std::vector<MemoryId>& arguments() { return arguments_; }
  std::vector<MemoryId>& reads() { return reads_; }
  bool reads_several_versions() const { return reads_several_versions_; }

 private:
  struct Part {
    int source;
    int64_t begin, end;  // on the axis
  };
  struct Frame {
    Position at;
    std::vector<UOp> values = {};  // of the sources evaluated so far
    Indices reduce_ranges = {};    // opened by a REDUCE
    std::optional<UOp> gate = {};  // of a PAD or GATHER
    std::vector<Part> parts = {};  // of a CAT: those that the position can lie in
  };

  // Of a memoized position, which is also a frame of the stack at first.
  static int64_t BytesOf(const Position& p) {
    constexpr size_t kSlack = 2;  // of tables that are half full
    return static_cast<int64_t>(
        kSlack * (sizeof(Position) + sizeof(UOp) + p.index.size() * sizeof(uint32_t)) +
        sizeof(Frame));
  }

  // Either the next source position that `frame` needs, or nullopt with the result in `*done`.
  std::optional<Position> Step(Frame* frame, UOp* done);
  std::optional<Position> StepElementwise(Frame* frame, UOp* done);
  std::optional<Position> StepMovement(Frame* frame, UOp* done);
  std::optional<Position> StepReduce(Frame* frame, UOp* done);
  std::optional<Position> StepGather(Frame* frame, UOp* done);
  std::optional<Position> StepCat(Frame* frame, UOp* done);
  UOp ZeroOutside(UOp gate, UOp value);
  // The range that a REDUCE reduces along `axis`, which independent ones at the same place share.
  UOp FoldedRange(UOp reduce, const Indices& index, int64_t axis);
  int64_t Argument(MemoryId memory);
  // A BUFFER of what one iteration of the shared loops has of the value, its rows side by side, so
  // that vectors of rows are contiguous wherever the others of its axes are.
  UOp PrivateMemory(int64_t slot, UOp like, const Indices& index, UOp* flat);
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp And(UOp x, UOp y) { return b_.Make(Op::kAnd, {x, y}); }
  // What a load gives where its gate is false.
  UOp Zero(DType dtype) { return graph_.ConstWord(dtype, ScalarFromMemory(dtype, 0)); }
  Indices ToIndices(const Position& p) const {
    Indices out;
    for (uint32_t id : p.index) out.push_back(graph_.at(id));
    return out;
  }

  static constexpr const RuleTable* kTables[] = {&kAlgebra, &kDivMod};

  const Graph& tensor_;
  const ReadFrom& read_from_;
  const std::span<const uint32_t> level_;
  Budget* budget_;
  Budget::Held held_;  // the memo
  Graph graph_;
  Rewriter b_;
  int64_t next_range_ = 0;
  absl::flat_hash_set<uint32_t> computed_;
  absl::flat_hash_map<MemoryId, UOp> written_;
  absl::flat_hash_map<MemoryId, uint32_t> lies_in_;
  absl::flat_hash_map<MemoryId, int64_t> private_;  // slots
  Shared shared_;
  std::vector<MemoryId> arguments_, reads_;
  bool reads_several_versions_ = false;
  absl::flat_hash_map<Position, UOp> memo_;
  absl::flat_hash_map<std::vector<int64_t>, UOp> folded_;
};

}  // namespace telegrad
