// What a store of a linear program stores, said by the position of the element alone: two stores to
// one element, by threads whose tiles overlap, store the same bytes where that is the same.
//
// A position is a sum: where a tile begins, and places within it, which are iterations of loops,
// lanes, or constants of replicated stores. A value is written as an expression of the position:
// in each index that it is computed from, the terms of the position are a multiple of it, and what
// is left depends on nothing that tells the two executions apart. Two values are the same where
// these expressions are. What is loaded from registers is what the stores to them store, one by one
// and in the loops in which they do: both executions go through the same iterations of these.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/ir/program.h"
#include "engine/lowering/barrier_order.h"
#include "engine/lowering/linear_form.h"

namespace telegrad {

class RepeatedValues {
 public:
  // A store by its place in the order, and the position of its element: sums that are the same in
  // both executions. Other terms of the index are, too.
  struct Store {
    size_t at = 0;
    std::span<const LinearForm> position;
  };

  // Nothing else than `stored` arguments, by slot, is stored to.
  RepeatedValues(const Program& program, BarrierOrder* barriers,
                 absl::flat_hash_set<int64_t> stored);

  // Whether two executions of the stores that store to one element store the same value, which of
  // two NaNs it is aside. `same` are the RANGEs, and quotients and rests, that have the same value
  // in both.
  bool Equal(const Store& a, const Store& b, const absl::flat_hash_set<uint32_t>& same);

  int64_t work() const { return work_; }  // nodes and forms since the start

 private:
  // A number for each expression; kNone where there is none of the position alone.
  using Value = int64_t;
  static constexpr Value kNone = -1;

  // What is being written as an expression of the position.
  struct Writing {
    const Store& store;
    const absl::flat_hash_set<uint32_t>& same;
    std::span<const size_t> loops;    // around the store
    bool in_other_iteration = false;  // of one of these
    bool lanes = false;               // are places
    bool inside = false;              // of a reduction of lanes, which are others
    int64_t steps = 0;
    absl::flat_hash_map<std::pair<uint32_t, bool>, Value> known = {};  // by node, and `inside`
    struct Element {
      uint32_t memory = 0;
      LinearForm place = {};
      bool inside = false;
    };
    std::vector<Element> open = {};  // elements of registers
    size_t least_open = SIZE_MAX;    // of the open ones that the value refers to
  };

  Value Write(const Store& store, const absl::flat_hash_set<uint32_t>& same);
  Value Of(Writing* w, UOp u, int depth);
  bool IsInPosition(const Writing& w, uint32_t atom) const;
  Value OfSum(Writing* w, const LinearForm& form, int depth);
  Value OfLoad(Writing* w, UOp load, int depth);
  Value OfRegister(Writing* w, UOp load, UOp memory, int depth);
  Value Number(std::vector<int64_t> expression);

  const Program& program_;
  const Graph& g_;
  BarrierOrder& barriers_;
  const absl::flat_hash_set<int64_t> stored_;
  absl::flat_hash_map<uint32_t, size_t> positions_;               // in the order, of loads
  absl::flat_hash_map<uint32_t, std::vector<size_t>> registers_;  // by memory: its stores
  absl::flat_hash_set<uint32_t> by_ranges_;  // memory of which some index is no constant
  std::map<std::vector<int64_t>, Value> numbers_;
  std::map<std::vector<int64_t>, Value> written_;  // by store and the ranges
  int64_t work_ = 0;
};

}  // namespace telegrad
