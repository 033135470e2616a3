// An executable on a device of the tensor level: the graph goes to the device as bytes, and a run
// is one launch of it. How the device executes the graph is up to the device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/execution/executable.h"
#include "engine/ir/graph.h"

namespace telegrad {

// `graph` is a verified tensor graph without variables. The device's errors, as they are.
absl::StatusOr<std::shared_ptr<const Executable>> MakeGraphExecutable(const FrozenGraph& graph,
                                                                      Device& device);

}  // namespace telegrad
