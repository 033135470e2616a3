// How much of what a thread has started a WAIT may leave unfinished, for hardware that completes
// copies in the order in which they were started and counts them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/ir/program.h"

namespace telegrad {

class CopyGroups {
 public:
  // `counts`: whether a COPY_ASYNC is one of those that the hardware counts, once each time.
  CopyGroups(const Program& program, const std::function<bool(UOp)>& counts);

  // How many of the copies started last need not have completed after `wait`. It may be less than
  // could be, never more. nullopt: there is nothing to wait for.
  std::optional<int64_t> Unfinished(UOp wait) const;

 private:
  struct OrderPosition {
    UOp node;
    size_t position;             // in the order
    std::vector<uint32_t> path;  // loops and roles that it is in
  };
  int64_t After(const OrderPosition& copy, const OrderPosition& wait) const;

  std::vector<OrderPosition> copies_, waits_;
};

}  // namespace telegrad
