// Runs plans by the names of their slots, for tests that compare what they compute.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "engine/frontend/plan.h"
#include "tests/conformance/run_graph.h"

namespace telegrad::testing {

using Bound = std::map<std::string, HostTensor>;

// Each runs the plan once on what is bound: inputs must be, state that is not begins with its
// initial value, outputs are made. Afterwards every slot is bound to what the run left in it.
absl::Status RunOnReference(const Plan& plan, Bound* bound);
absl::Status RunOnCpu(CpuRunner* cpu, const Plan& plan, Bound* bound);

}  // namespace telegrad::testing
