// For tests only: what a loopback device runs in place of a binary, a tensor graph, which the
// device's own side schedules and compiles.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/types/var_value.h"

namespace telegrad {

class GraphProgram {
 public:
  virtual ~GraphProgram() = default;

  // Enqueues a run with bindings[i] as slot i of the graph, see Queue::Submit.
  virtual absl::StatusOr<TimelinePoint> Submit(std::span<const BufferView> bindings,
                                               std::span<const VarValue> variables) const = 0;
};

// Makes the graph of a ProgramImage for a tensor level device ready on `device`.
using GraphLoader = std::function<absl::StatusOr<std::shared_ptr<const GraphProgram>>(
    std::string_view graph, Device& device)>;

}  // namespace telegrad
