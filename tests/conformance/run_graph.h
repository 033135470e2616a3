// The ways that a tensor graph can be run, for tests that compare them.
#pragma once

#include <memory>
#include <span>

#include "devices/api/device.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {

// The whole engine on the CPU device: schedule, lower, render, compile, load, submit.
class CpuRunner {
 public:
  // As many threads as the target says.
  static absl::StatusOr<std::unique_ptr<CpuRunner>> Open(ExecutableCache::Limits limits = {},
                                                         const Target& target = HostTarget(0));
  absl::Status Run(UOp sink, std::span<const VarValue> variables, Slots* slots);
  ExecutableCache::Stats stats() const { return cache_.stats(); }

 private:
  CpuRunner(std::unique_ptr<Device> device, const ExecutableCache::Limits& limits)
      : device_(std::move(device)), cache_(limits) {}

  std::unique_ptr<Device> device_;
  ExecutableCache cache_;
};

}  // namespace telegrad::testing
