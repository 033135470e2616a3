// Measures programs on a device through its contract: compiled as the daemon compiles kernels,
// loaded, and run on scratch buffers of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "devices/api/device.h"
#include "engine/compile/kernel_compiler.h"
#include "engine/execution/run_queues.h"
#include "engine/lowering/choose/measure.h"

namespace telegrad {

struct MeasureOptions {
  int least_runs = 3;
  int most_runs = 25;
  double seconds = 0.04;          // of one program: then the least time so far counts
  double batch_seconds = 0.5e-3;  // shorter programs are launched several times in a submission
  int64_t memory_bytes = int64_t{4} << 30;  // of scratch buffers, at most
  // Memory of the device; by default its own Alloc.
  std::function<absl::StatusOr<std::shared_ptr<Memory>>(int64_t bytes)> alloc = {};
  double longest_seconds =
      1;  // of one run of a program, as it is predicted; longer ones are refused
  // Runs the slices, which are cut as those of any run, and returns the seconds that they took on
  // the device; by default through its compute queue, by the clock of the host.
  std::function<absl::StatusOr<double>(std::shared_ptr<const std::vector<RunSlice>> slices,
                                       const std::vector<BufferView>& bindings)>
      run = {};
};

class DeviceMeasure final : public Measure {
 public:
  // The device outlives the object.
  DeviceMeasure(Device& device, std::shared_ptr<KernelCompiler> compiler,
                MeasureOptions options = {});

  absl::StatusOr<double> Seconds(const Program& program, double at_most, Budget* budget) override;

  // Device time that programs have taken so far.
  double seconds_used() const { return seconds_used_; }

 private:
  absl::StatusOr<std::vector<BufferView>> Bind(const Program& program, Launch* launch);
  // `launches` launches of all iterations, in seconds.
  absl::StatusOr<double> Run(const Launch& launch, int launches,
                             const std::vector<BufferView>& bindings, Budget* budget);

  Device& device_;
  const std::shared_ptr<KernelCompiler> compiler_;
  MeasureOptions options_;
  // By argument; kept, as the programs of one kernel have the same arguments, and copies after
  // them.
  std::vector<std::shared_ptr<Memory>> scratch_;
  double seconds_used_ = 0;
};

}  // namespace telegrad
