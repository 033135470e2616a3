// How much of what a thread has started a WAIT may leave unfinished, for hardware that completes
// groups of copies in the order in which they were started and counts them. A group is all copies
// with no WAIT and no beginning or end of a loop or role between them: so it has one end for all,
// which is an instruction, and all of it has been started where a WAIT stands.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/ir/program.h"

namespace telegrad {

class CopyGroups {
 public:
  // `counts`: whether a COPY_ASYNC is one of those that the hardware counts, each time.
  CopyGroups(const Program& program, const std::function<bool(UOp)>& counts);

  // Whether the group of a copy that counts ends with it.
  bool IsLast(UOp copy) const;

  // How many of the groups started last need not have completed after `wait`. It may be less than
  // could be, never more. nullopt: there is nothing to wait for.
  std::optional<int64_t> Unfinished(UOp wait) const;

 private:
  struct OrderPosition {
    std::vector<UOp> nodes;      // the copies of a group, or one WAIT
    size_t position;             // of the first one in the order
    std::vector<uint32_t> path;  // loops and roles that they are in
  };
  const OrderPosition* GroupOf(UOp copy) const;  // null: it does not count
  int64_t After(const OrderPosition& group, const OrderPosition& wait) const;

  std::vector<OrderPosition> groups_, waits_;
};

}  // namespace telegrad
