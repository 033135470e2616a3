// Read: is answered once the run that writes its buffer has ended; what follows goes on. The bytes
// are in the answer, or travel beside the operations (see data/transfers.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/data/held_read.h"
#include "server/session/operation.h"

namespace telegrad {

struct ReadOp {
  uint64_t handle = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t transfer = 0;  // 0: the answer has the bytes
};
struct ReadResult {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string copy = {};                // the bytes, or
  std::shared_ptr<HeldRead> held = {};  // the memory that has them,
  uint64_t at = 0;                      // from this offset

  std::optional<ReadResult> Kept() const {
    return held == nullptr ? std::optional(*this) : std::nullopt;
  }
  int64_t kept_bytes() const { return static_cast<int64_t>(copy.size()); }
};

std::unique_ptr<Action> MakeAction(ReadOp op);

}  // namespace telegrad
