// How a search learns what a program costs: on the real device, through whoever can compile and run
// it there. Lowering knows no device, so the search is given an object.
#pragma once

#include <span>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/program.h"

namespace telegrad {

class Measure {
 public:
  virtual ~Measure() = default;

  // Seconds that one run of the program takes, its kernels that pack weights not counted. It may
  // stop early, with what it has seen so far, once the program is certain to take more than
  // `at_most` seconds. An error of the program (it cannot be compiled, or does not run) is for this
  // program alone; CANCELLED and DEADLINE_EXCEEDED end the search.
  virtual absl::StatusOr<double> Seconds(const Program& program, double at_most,
                                         Budget* budget) = 0;
};

}  // namespace telegrad
