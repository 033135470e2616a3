// Which accesses of the threads of one workgroup a barrier keeps apart.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/program.h"

namespace telegrad {

// All threads of a workgroup pass the same barriers in the same order, so two accesses are ordered
// unless both lie between the same two barriers. Then the program has a way from one to the other
// that passes no barrier, by the loops' ways back and around loops that may have no iterations.
class BarrierOrder {
 public:
  explicit BarrierOrder(const Program& program);

  // Whether a barrier of the workgroup lies between any execution of the one position in the order
  // by a thread and any execution of the other by another thread.
  bool Separates(size_t a, size_t b);

 private:
  const std::vector<bool>& ReachedFrom(size_t position);

  const Program& program_;
  bool known_ = true;  // no roles or phases, and loops around barriers are the same in all threads
  std::vector<size_t> around_;  // of a RANGE: behind its END; of an END: behind its RANGE; else 0
  std::vector<std::vector<bool>> reached_;
};

}  // namespace telegrad
