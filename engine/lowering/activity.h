// What has to hold for an iteration of a loop to do anything.
#pragma once

#include <vector>

#include "engine/ir/graph.h"
#include "engine/lowering/affine.h"

namespace telegrad {

// The comparisons that all hold where `condition` does.
std::vector<UOp> ConditionsIn(UOp condition);

// Whether a kernel reads single numbers at all; without one, a run gives nothing.
bool ReadsNumbers(UOp sink);

class Activity {
 public:
  Activity(UOp sink, const Dependence& dependence);

  // Of an END or a REDUCE, the comparisons without any of which an iteration of its ranges does
  // nothing: the STORE is skipped or leaves what is in memory, or the identity is reduced.
  std::vector<UOp> Needs(UOp closing) const;
  // Whether it is a number that the run gives: computed of ones that are loaded from arguments
  // which the kernel does not write, and the same in all iterations.
  bool IsGiven(UOp u) const;

 private:
  const Graph& graph_;
  const Dependence& dependence_;
  std::vector<UOp> stored_;  // memory
};

}  // namespace telegrad
