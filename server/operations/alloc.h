// Alloc: a buffer of zeros, or a part of a file of a disk, under a handle that the client chooses.
// It waits for nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "server/session/operation.h"
#include "server/session/turn.h"

namespace telegrad {

struct AllocOp {
  // A part of one of the device's files, see Device::Open.
  struct File {
    std::string path;
    uint64_t offset = 0;
    OpenMode mode = OpenMode::kRead;
  };
  uint64_t handle = 0;
  uint64_t bytes = 0;
  std::string device;
  std::optional<File> file = {};
};

std::unique_ptr<Action> MakeAction(AllocOp op);

// The buffer of `op`, charged to the tenant; the caller adds it to the session.
absl::StatusOr<std::unique_ptr<Buffer>> NewBuffer(const Turn& turn, const AllocOp& op);

}  // namespace telegrad
