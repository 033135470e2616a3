// All elements that the executions of an access touch, one by one: for accesses of which the forms
// of their indices say too little, as of tiles of rows that were joined and whose index is a
// division of one range and a multiple of another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/graph.h"

namespace telegrad {

class EvaluatedAccesses {
 public:
  // Of threads that `parallel` tells apart.
  EvaluatedAccesses(const Graph& graph, std::vector<UOp> parallel)
      : g_(graph), parallel_(std::move(parallel)) {}

  // An address, and the elements from there on that are touched.
  struct Access {
    UOp address;
    int64_t width = 1;
  };

  // What is known of the iterations that two executions are in.
  struct Iterations {
    std::vector<std::pair<UOp, int64_t>> later;  // that of b in a range is so many later than a's
    std::vector<std::pair<UOp, int64_t>> of_a, of_b;  // their numbers in a range
  };

  // Whether no two executions of the accesses, which may be the same one, in different threads and
  // these iterations touch one element; with `any_thread`, not even in the same thread. False where
  // the index depends on more than ranges and lanes, or there are too many executions; a gate that
  // does counts as true, and a computed end as the greatest that it may be. Elements of one byte,
  // of which there are `together`, count as one.
  bool Apart(const Access& a, const Access& b, const Iterations& iterations, int64_t together,
             bool any_thread = false);

  int64_t work() const { return work_; }  // elements since the start

 private:
  struct Touched {
    bool known = false;
    absl::flat_hash_map<int64_t, int64_t> thread;  // by place; kSeveral where there are more
  };
  static constexpr int64_t kSeveral = -1;

  struct Nodes {
    bool known = false;           // the index can be evaluated
    bool gated = false;           // and so can the gate
    std::vector<UOp> order = {};  // operands first
  };
  const Nodes& NodesOf(UOp address);
  // Adds what `u` is computed from; false where it cannot be evaluated.
  bool Read(UOp u, Nodes* nodes) const;
  // Those of one execution: places with equal differences are in iterations of both.
  struct Own {
    std::vector<std::pair<UOp, int64_t>> less;  // the number in the range less this is the same
    std::vector<std::pair<UOp, int64_t>> at;    // its number
    std::vector<UOp> any;                       // neither address depends on these
  };
  const Touched& Of(const Access& access, const Own& own, int64_t together);
  static void Evaluate(std::span<const UOp> nodes, int64_t lane, NodeMap<int64_t>* values);

  const Graph& g_;
  const std::vector<UOp> parallel_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Nodes>> nodes_;  // by address
  std::map<std::vector<int64_t>, Touched> touched_;
  int64_t work_ = 0;
};

}  // namespace telegrad
