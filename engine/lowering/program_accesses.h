// What a program touches: its accesses to arguments that it stores to and to memory that a
// workgroup shares, and how values of it are computed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/base/budget.h"
#include "engine/ir/program.h"
#include "engine/lowering/barrier_order.h"
#include "engine/lowering/linear_form.h"
#include "engine/lowering/same_element.h"

namespace telegrad {

// All accesses by one address that store, or load.
struct Touch {
  UOp address;
  bool stores = false;
  bool asynchronous = false;  // runs beside the threads
  std::vector<Execution> executions = {};
  LinearForm form = {};  // of the index
  int sum = 0;           // number of the form, but for its constant
  int loops = 0;         // those of ProgramAccesses::LoopsOf that address and gate depend on
  int64_t width = 1;     // elements from there on
};

class ProgramAccesses {
 public:
  using Touches = std::vector<Touch>;  // to one memory

  explicit ProgramAccesses(const Program& program)
      : program_(program), g_(*program.graph), values_(g_) {}

  // A step of the budget for each node. Call once.
  absl::Status Read(Budget* budget);

  const ProgramValues& values() const { return values_; }
  // Ranges of more than one iteration that tell threads apart.
  const std::vector<UOp>& parallel() const { return parallel_; }
  // Ranges with computed ends, which say something of whatever depends on the ranges.
  const std::vector<UOp>& LoopsOf(int number) const {
    return loop_sets_[static_cast<size_t>(number)];
  }
  const std::map<int64_t, Touches>& arguments() const { return arguments_; }  // by slot
  const std::map<uint32_t, Touches>& locals() const { return locals_; }       // by BUFFER
  BarrierOrder& barriers() {
    if (!barriers_) barriers_.emplace(program_);
    return *barriers_;
  }

 private:
  using Key = std::tuple<uint32_t, bool, bool>;

  void ReadStores();
  void ReadValue(UOp u);
  void ReadAccess(UOp u, size_t position);
  void ReadLoops(UOp u);
  int Together(int a, int b);  // numbers of sets of loops
  int NumberOf(std::vector<UOp> loops);
  int LoopsAt(UOp u) const {
    const auto at = loops_.find(u.id());
    return at == loops_.end() ? 0 : at->second;
  }
  Execution ExecutionOf(UOp copy, size_t position);
  // Whether there are so many more iterations of the innermost loop where the access is executed.
  bool AreLeft(UOp address, std::span<const size_t> loops, int64_t iterations) const;
  Touches* TouchesOf(UOp memory);
  void Add(Touch touch, const Execution& execution);

  const Program& program_;
  const Graph& g_;
  ProgramValues values_;
  std::vector<UOp> parallel_;
  std::map<int64_t, Touches> arguments_;
  std::map<uint32_t, Touches> locals_;
  absl::flat_hash_map<Key, size_t> touches_;  // where in those of its memory
  std::map<std::map<uint32_t, int64_t>, int> sums_;
  std::vector<std::vector<UOp>> loop_sets_{{}};
  std::map<std::pair<int, int>, int> together_;
  absl::flat_hash_map<uint32_t, int> loops_;       // by node: the set, if it is not empty
  std::map<uint32_t, std::vector<size_t>> waits_;  // by asynchronous operation: positions
  std::optional<BarrierOrder> barriers_;
};

}  // namespace telegrad
