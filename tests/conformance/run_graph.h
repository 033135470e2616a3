// The ways that a tensor graph can be run, for tests that compare them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "engine/execution/executable_cache.h"
#include "engine/ir/graph.h"
#include "engine/types/target.h"
#include "engine/types/var_value.h"

namespace telegrad::testing {

// The bytes of each slot, before and after.
using Slots = std::vector<std::vector<uint8_t>>;

// Schedules, lowers for a made-up target of that vector width, verifies and interprets each
// program, in two slices, as two workers would run them.
absl::Status RunLowered(UOp sink, int vector_bytes, std::span<const VarValue> variables,
                        Slots* slots);

// The whole engine on the CPU device: schedule, lower, render, compile, load, submit.
class CpuRunner {
 public:
  static absl::StatusOr<std::unique_ptr<CpuRunner>> Open(ExecutableCache::Limits limits = {});
  absl::Status Run(UOp sink, std::span<const VarValue> variables, Slots* slots);
  ExecutableCache::Stats stats() const { return cache_.stats(); }

 private:
  CpuRunner(std::unique_ptr<Device> device, const ExecutableCache::Limits& limits)
      : device_(std::move(device)), cache_(limits) {}

  std::unique_ptr<Device> device_;
  ExecutableCache cache_;
};

// What differs, or "". Integers exactly, NaN as NaN. Floats exactly where `exact`, else up to the
// reassociation of sums and the few ulp that ops.def allows.
std::string Difference(DType dtype, bool exact, const std::vector<uint8_t>& want,
                       const std::vector<uint8_t>& got);

}  // namespace telegrad::testing
