// Admission of runs to a device: only those whose predicted memory and time are within the
// limits. Decided before anything is allocated or enqueued for the run.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/execution/executable.h"

namespace telegrad {

struct RunLimits {
  int64_t bytes = 0;           // of buffers and temporaries at a time; 0: what the device has
  int64_t ms = 600'000;        // of device time, as predicted
  int64_t launch_ms = 10'000;  // of the longest launch, likewise: until its end nobody else runs
};

// RESOURCE_EXHAUSTED with the predicted figure and the limit.
absl::Status Admit(const RunCost& cost, const RunLimits& limits);

// A run that may take `left_ns` until its deadline and is predicted to end after `end_ns`, of which
// it runs for `run_ns` itself. DEADLINE_EXCEEDED where it could not make it on an idle device,
// otherwise RESOURCE_EXHAUSTED, with the figures and when to try again.
absl::Status AdmitDeadline(int64_t left_ns, double run_ns, double end_ns);

}  // namespace telegrad
