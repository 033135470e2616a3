// Copy: a part of a buffer into another one, handed to a queue of a device.
#pragma once

#include <cstdint>
#include <memory>

#include "server/session/operation.h"

namespace telegrad {

struct CopyOp {
  uint64_t from = 0, from_offset = 0;
  uint64_t to = 0, to_offset = 0;
  uint64_t bytes = 0;
};

std::unique_ptr<Action> MakeAction(CopyOp op);

}  // namespace telegrad
