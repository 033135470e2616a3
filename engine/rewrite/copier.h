// A graph with some nodes replaced: a copy that is made node by node, sources first.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// `u`, of any graph, in `g` and with these sources of it.
inline UOp MakeLike(Graph* g, UOp u, std::span<const UOp> src) {
  return g->Make(u.op(), u.dtype(), src, u.arg());
}

class Copier {
 public:
  explicit Copier(const FrozenGraph& graph)
      : from_(graph), out_(std::make_shared<Graph>()), made_(*graph.graph) {}

  // `make` gives what each node that the root depends on becomes; it is called sources first. The
  // result also has the nodes that were made and are not needed.
  absl::StatusOr<FrozenGraph> Run(Budget* budget,
                                  absl::FunctionRef<absl::StatusOr<UOp>(UOp u)> make);

  // For `make`: where the copies are; what a node has become, invalid before it is one's turn; and
  // a node with what its sources have become.
  Graph* out() { return out_.get(); }
  UOp Made(UOp u) const { return made_.at(u.id()); }
  UOp Same(UOp u);

 private:
  const FrozenGraph from_;
  std::shared_ptr<Graph> out_;
  NodeMap<UOp> made_;
  std::vector<UOp> src_;  // of the node that Same makes
};

}  // namespace telegrad
