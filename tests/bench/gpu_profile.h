// What each kernel of networks takes on a GPU, beside the seconds that the cost model predicts.
#pragma once

#include "absl/status/status.h"
#include "tests/bench/gpu_runner.h"

namespace telegrad::bench {

// Prints, for each network, its time and one line for each kernel in the order of their time:
// "network: kernel", microseconds of all its launches in a run (the least of several traced runs),
// "us", the predicted time over that, and what is predicted. `smoke`: tiny networks, one run.
absl::Status ProfileNetworks(GpuRunner& runner, bool smoke);

}  // namespace telegrad::bench
