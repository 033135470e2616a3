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
// A longer answer of a resumable session is not kept for repetition. What a front asks for in one
// read on the connection of its session is not longer.
inline constexpr uint64_t kMostKeptRead = 1 << 20;

struct ReadResult {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string copy = {};                // the bytes, or
  std::shared_ptr<HeldRead> held = {};  // the memory that has them,
  uint64_t at = 0;                      // from this offset

  // Of what is held, a copy of up to kMostKeptRead bytes.
  std::optional<ReadResult> Kept() const;
  bool kept_whole() const { return held == nullptr; }
  int64_t kept_bytes() const { return static_cast<int64_t>(held == nullptr ? copy.size() : bytes); }
};

std::unique_ptr<Action> MakeAction(ReadOp op);

}  // namespace telegrad
