// Random nodes that fit into a graph, driven by the op table: sources are chosen and converted by
// the op's type and shape rules, arguments made by its ArgKind, so a new op needs nothing here as
// long as its rules and argument kind are known. What still breaks a rule is simply not made.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad::fuzz {

class NodeMaker {
 public:
  NodeMaker(uint64_t seed, Graph* graph) : rng_(seed), g_(*graph) {}

  // A random one of the values so far, or an input where there is none.
  UOp Pick();
  // What Pick may give from now on; large values only now and then.
  void Offer(UOp u);

  // A new node of `op` with `first` as its first source where it fits; a random op if not given.
  UOp Node(std::optional<Op> op = std::nullopt, UOp first = {});
  // The node as asked for, or with other sources' views, or with another argument; invalid if none
  // of these is allowed. `change_arg`: the argument is to be another one.
  UOp Fit(Op op, DType dtype, std::vector<UOp> src, std::vector<int64_t> arg,
          bool change_arg = false);
  // `u`, or something made from it, with the type and shape of `like`.
  UOp Like(UOp u, UOp like) { return Like(u, like.dtype(), like.shape()); }
  UOp Like(UOp u, DType dtype, ShapeView shape);
  UOp Cast(UOp u, DType dtype);
  // A parameter with a slot of its own.
  UOp Input(DType dtype, ShapeView shape);
  // A view of `u` that a store may write to.
  UOp StorableView(UOp u);
  // A parameter; in a slot of its own where another kind of it has that slot.
  UOp Param(DType dtype, std::vector<int64_t> arg);
  // The node exactly as asked for, or invalid.
  UOp Try(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg);

  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  DType AnyDType();
  Shape AnyShape();

 private:
  // A value of a CALL or LOOP of a body made for it.
  UOp Function(bool loop);
  UOp OfElements(UOp u, const OpInfo& info);
  std::vector<UOp> Sources(const OpInfo& info, UOp first);
  std::vector<int64_t> Argument(const OpInfo& info, DType dtype, std::vector<UOp>* src);
  std::vector<int64_t> Dims(const OpInfo& info, ShapeView from);
  // Lets a word of `arg` be computed by one more source, now and then.
  void MakeSymbolic(const OpInfo& info, std::vector<int64_t>* arg, std::vector<UOp>* src);
  std::vector<int64_t> Pairs(ShapeView from, bool grow);
  std::vector<int64_t> Axes(ShapeView from, bool all);

  std::mt19937_64 rng_;
  Graph& g_;
  std::vector<UOp> pool_;
  std::vector<UOp> params_;  // by slot; invalid where the slot is free
  bool in_body_ = false;     // of a function, which has no parameters of the graph
};

}  // namespace telegrad::fuzz
