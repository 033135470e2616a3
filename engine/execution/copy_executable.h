// An executable on a device that runs no programs: a graph whose stores only move bytes, such as
// the part of a graph that lies on a disk, is a list of copies.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/execution/executable.h"
#include "engine/ir/graph.h"

namespace telegrad {

// `graph` is a verified tensor graph without variables, as a partition has it. UNIMPLEMENTED names
// a store that is not a copy between contiguous ranges, and the op that it would have to compute.
absl::StatusOr<std::shared_ptr<const Executable>> MakeCopyExecutable(const FrozenGraph& graph,
                                                                     Device& device);

}  // namespace telegrad
