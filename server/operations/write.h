// Write: waits until the runs and reads that use its buffer have ended and, if its bytes travel
// beside the operations (see data/transfers.h), until they are there. One of memory that the host
// cannot address is handed to the queue of its device.
#pragma once

#include <cstdint>
#include <memory>

#include "server/data/payload.h"
#include "server/session/operation.h"

namespace telegrad {

struct WriteOp {
  uint64_t handle = 0;
  uint64_t offset = 0;
  std::unique_ptr<Payload> payload;  // or, as a transfer,
  uint64_t transfer = 0;
  uint64_t bytes = 0;  // that it has

  uint64_t size() const { return payload ? static_cast<uint64_t>(payload->size()) : bytes; }
};

std::unique_ptr<Action> MakeAction(WriteOp op);

}  // namespace telegrad
