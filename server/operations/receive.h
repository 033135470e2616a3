// Receive: admits the bytes that another server sends, into a part of a buffer.
#pragma once

#include <cstdint>
#include <memory>

#include "server/session/operation.h"

namespace telegrad {

struct ReceiveOp {
  uint64_t handle = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t transfer = 0;  // that was admitted
};

std::unique_ptr<Action> MakeAction(ReceiveOp op);

}  // namespace telegrad
