// Values of a tensor graph as scalar expressions: what the element of a node at a place is, where
// the place is a RANGE for each axis. Movement ops dissolve into index arithmetic; the expression
// is simplified by the rules as it is built. What the form does not look into is a leaf.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/rules/linear.h"
#include "engine/schedule/tensor_facts.h"
#include "engine/schedule/view_index.h"

namespace telegrad {

class IndexForm {
 public:
  // An element of a tensor: a PARAM without dims stands for it in expressions.
  struct Leaf {
    uint32_t node;
    std::vector<uint32_t> index;  // ids of expressions
    friend bool operator==(const Leaf&, const Leaf&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Leaf& l) {
      return H::combine(std::move(h), l.node, l.index);
    }
  };

  // Looks into what differs by place, see TensorFacts, and into views of anything as long as they
  // are read in place. `facts` are those of all nodes it meets.
  IndexForm(const Graph& tensor, const TensorFacts& facts, Budget* budget);

  // The place that is RANGE d along each axis, 0 along one of size 1.
  Indices Everywhere(ShapeView dims);
  // The element of `node` there; invalid where it would take too many steps.
  absl::StatusOr<UOp> ElementOf(UOp node, const Indices& index);

  // The element of `node` at the place in question, whichever that is.
  UOp Anywhere(UOp node) { return MakeLeaf({node.id(), {}}); }

  bool is_leaf(UOp u) const { return u.is(Op::kParam); }
  const Leaf& leaf(UOp u) const { return leaves_[static_cast<size_t>(u.slot())]; }
  // The axes whose RANGE an expression depends on, as bits.
  uint32_t Axes(UOp u);
  // Everything that `root` depends on through sources and leaf indices, sources first.
  std::vector<UOp> Cone(UOp root) const;
  // `root` with `from` replaced, simplified again.
  UOp Replace(UOp root, std::span<const std::pair<UOp, UOp>> from);

  // An integer as a linear form over i64 that is equal to it modulo 2^64; nullopt for other types.
  // `*exact`: neither side of a cast has wrapped, so that it may also be compared.
  std::optional<Linear> Widened(UOp u, bool* exact);

  Rewriter& b() { return b_; }
  Graph& graph() { return graph_; }
  bool large() const;  // time for a new one

 private:
  struct Frame {
    Leaf at;
    std::vector<UOp> values;
    UOp gate;
  };

  // The next place that `frame` needs, or nullopt with the result in `*done`.
  std::optional<Leaf> Step(Frame* frame, UOp* done);
  UOp MakeLeaf(Leaf leaf);
  Indices ToIndices(const Leaf& at) const;
  bool AddWidened(UOp u, int64_t factor, int depth, Linear* out, bool* exact);
  bool AddAtom(UOp u, int64_t factor, Linear* out);

  static constexpr const RuleTable* kTables[] = {&kAlgebra, &kDivMod};

  const Graph& tensor_;
  const TensorFacts& facts_;
  Budget* const budget_;
  Graph graph_;
  Rewriter b_;
  int widening_ = 0;  // steps that are left to AddWidened
  std::vector<Leaf> leaves_;
  absl::flat_hash_map<Leaf, uint32_t> numbers_;  // of the leaves
  absl::flat_hash_map<Leaf, UOp> memo_;
  std::vector<uint32_t> axes_;  // by node
};

}  // namespace telegrad
