// Combines several runs into one: their launches are in one command buffer, in order, so that a
// replay checks its bindings once and is one submission. The temporaries of a run are not used
// after it, so all runs share memory of the size of the largest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/execution/planned_executable.h"

namespace telegrad {

class CaptureGraph {
 public:
  // Adds a run of `executable`, whose slot i is slot slots[i] of the capture. Slots of different
  // runs that map to one slot of the capture are one buffer, so that a run reads what earlier runs
  // wrote. INVALID_ARGUMENT: it is on another device than those before, a slot is missing, used as
  // another type, or given twice to a run that writes it. UNIMPLEMENTED for one that holds values
  // of variables. After an error the capture is as it was.
  absl::Status Add(const std::shared_ptr<const Executable>& executable,
                   std::span<const int32_t> slots);

  // All of them as one executable. INVALID_ARGUMENT where there are none.
  absl::StatusOr<std::shared_ptr<const Executable>> Finish() &&;

 private:
  std::shared_ptr<DeviceRuns> runs_;
  LaunchPlan plan_;
};

}  // namespace telegrad
