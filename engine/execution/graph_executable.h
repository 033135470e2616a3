// An executable on a device of the tensor level: the graph goes to the device as bytes, once, and a
// run is one launch of it, encoded once, with the values of its variables as scalars. What the
// device makes of the graph, it alone knows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "engine/execution/executable.h"
#include "engine/execution/run_queues.h"
#include "engine/ir/graph.h"
#include "engine/types/form_cost.h"
#include "engine/types/var_value.h"

namespace telegrad {

// A graph as a device has loaded it.
struct GraphOnDevice {
  std::shared_ptr<LoadedProgram> program;
  std::string name;
  std::vector<SlotUse> slots;
  int64_t bytes = 0;                // of the graph
  RunCost cost;                     // of one without variables
  std::vector<KernelInfo> kernels;  // one

  mutable Mutex mutex;
  // What runs take with values that were asked about, the last ones first.
  mutable std::vector<FormCost<RunCost>> forms TG_GUARDED_BY(mutex);
  mutable bool predicted TG_GUARDED_BY(mutex) = true;  // by its device
  // A run of it, encoded once for all values of its variables.
  mutable std::vector<int64_t> variables TG_GUARDED_BY(mutex);  // ids, of the values of a run
  mutable std::shared_ptr<const std::vector<RunSlice>> run TG_GUARDED_BY(mutex);
};

// `graph` is a verified tensor graph with the content hash `hash`. The device's errors, as they
// are.
absl::StatusOr<std::shared_ptr<const GraphOnDevice>> LoadGraph(const Digest& hash,
                                                               const FrozenGraph& graph,
                                                               Device& device);
// On the device that loaded the graph, which looks at the values when it runs. What a run takes
// with values like none before, the device is asked, which compiles for them as its own runs would;
// unless it `may_wait` for that: then null.
absl::StatusOr<std::shared_ptr<const Executable>> MakeGraphExecutable(
    std::shared_ptr<const GraphOnDevice> graph, std::span<const VarValue> variables, Device& device,
    bool may_wait);

}  // namespace telegrad
