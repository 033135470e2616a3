// All elements that the executions of an access touch, one by one: for accesses of which the forms
// of their indices say too little, as of tiles of rows that were joined and whose index is a
// division of one range and a multiple of another.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/graph.h"

namespace telegrad {

class EvaluatedAccesses {
 public:
  // Of threads that `parallel` tells apart.
  EvaluatedAccesses(const Graph& graph, std::vector<UOp> parallel)
      : g_(graph), parallel_(std::move(parallel)) {}

  // Whether no two executions of the accesses, which may be the same one, in different threads and
  // the same iterations of the ranges `same` touch one element. False where the index or the gate
  // depends on more than ranges and lanes, or there are too many executions. Elements of one byte,
  // of which there are `together`, count as one.
  bool Apart(UOp a, UOp b, const std::vector<UOp>& same, int64_t together);

  int64_t work() const { return work_; }  // executions since the start

 private:
  struct Touched {
    bool known = false;
    absl::flat_hash_map<int64_t, int64_t> thread;  // by place; kSeveral where there are more
  };
  static constexpr int64_t kSeveral = -1;

  const Touched& Of(UOp address, const std::vector<UOp>& same, int64_t together);
  // The nodes of index and gate, operands first; false where there are others than it can evaluate.
  bool Read(UOp address, std::vector<UOp>* nodes) const;
  static void Evaluate(std::span<const UOp> nodes, int64_t lane, NodeMap<int64_t>* values);

  const Graph& g_;
  const std::vector<UOp> parallel_;
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, Touched> touched_;
  int64_t work_ = 0;
};

}  // namespace telegrad
