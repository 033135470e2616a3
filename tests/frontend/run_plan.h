// Runs of plans for the tests of the frontend: on the reference interpreter, and on the CPU device.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/frontend/tensor/plan.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {

using Named = std::map<std::string, HostTensor>;

// The outputs by name. Inputs and state are bound by name; state that is not there gets its initial
// value; state that the run stores is updated in `state` where given. `device`: null for the
// reference interpreter.
absl::StatusOr<Named> RunPlan(const Plan& plan, const Named& inputs, CpuRunner* device = nullptr,
                              Named* state = nullptr,
                              const std::map<std::string, int64_t>& variables = {});

}  // namespace telegrad::testing
