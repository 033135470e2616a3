// Which values of a program are the same in all threads of a workgroup.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/ir/program.h"

namespace telegrad {

// A value that is computed from values alone that are the same is so, too; what is loaded is where
// the program does not store there, and in local memory where no threads race. And what lanes
// exchange is: where the lanes of one warp are the workgroup, each adds what the lane has whose
// number differs in one bit, or takes the maximum of both, so both have the same from then on, and
// after one such step for each bit, all have. So of each value is known on which bits of the
// thread's number it does not depend.
class ThreadValues {
 public:
  explicit ThreadValues(const Program& program);

  bool AreSame(UOp u) const { return without_.at(u.id()) == kAll; }

 private:
  static constexpr uint64_t kAll = ~uint64_t{0};

  uint64_t BitsWithout(UOp u) const;
  // The bit in which the numbers of the lanes differ that exchange what they add; 0: none.
  uint64_t ExchangedBit(UOp sum) const;
  bool IsThreadNumber(UOp u) const;

  struct Threads {
    UOp range;
    int64_t stride = 1;
  };
  const Graph& g_;
  NodeMap<uint64_t> without_;            // the bits that the value does not depend on
  std::vector<Threads> ranges_;          // of more than one iteration
  int64_t lanes_ = 0;                    // of the workgroup, if these are some of one warp; else 0
  absl::flat_hash_set<int64_t> stored_;  // slots
};

}  // namespace telegrad
