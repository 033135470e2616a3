// A GPU and this machine's processor for benchmarks: graphs of plans on either, with buffers that
// are filled alike, and times of what the GPU is given.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad::bench {

class GpuRunner {
 public:
  // Times are the best of `rounds`, each of `runs` that are submitted at once.
  struct Repeats {
    int rounds = 5, runs = 10;
  };
  // NOT_FOUND: there is no GPU, and why.
  static absl::StatusOr<std::unique_ptr<GpuRunner>> Open(const std::string& library,
                                                         Repeats repeats);

  Device& gpu() { return *gpu_; }
  Device& host() { return *host_; }

  // Seconds of one run.
  using Submit = std::function<absl::StatusOr<TimelinePoint>()>;
  absl::StatusOr<double> Time(const Submit& submit) const;

  absl::StatusOr<BufferView> Buffer(Device& device, int64_t bytes) const;
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> CopyCommand(int64_t bytes) const;
  absl::Status Transfer(const BufferView& to, const BufferView& from, int64_t bytes) const;

  // The plan's graph for one of the two devices.
  absl::StatusOr<std::shared_ptr<const Executable>> Compile(
      const Plan& plan, Device& device, std::span<const VarValue> variables = {});
  // Its slots there. Inputs and states are value(i) for their element i; integers are 0.
  absl::StatusOr<std::vector<BufferView>> Bind(const Plan& plan, Device& device,
                                               const std::function<float(int64_t)>& value) const;
  // The first elements of a slot, which is of floats.
  absl::StatusOr<std::vector<float>> Read(const BufferView& buffer, DType dtype,
                                          int64_t elements) const;

 private:
  explicit GpuRunner(Repeats repeats) : repeats_(repeats) {}

  const Repeats repeats_;
  std::unique_ptr<Device> host_, gpu_;
  ExecutableCache cache_{ExecutableCache::Limits{}};
};

}  // namespace telegrad::bench
