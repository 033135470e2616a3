// What the caches of executables of several tenants have in common. Compiled kernels and schedules
// follow from graphs alone, so one copy serves all; which tenant has which executable, and whether
// it was cached, each tenant's own cache knows. (That something is compiled already shows in how
// long a first run takes, and only there.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/execution/executable_cache.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/planned_executable.h"
#include "engine/execution/temporaries.h"
#include "engine/schedule/schedule_cache.h"

namespace telegrad {

// Thread-safe.
struct SharedCaches {
  struct Counters {
    std::atomic<uint64_t> hits{0};
    std::atomic<uint64_t> misses{0};
    std::atomic<uint64_t> general_forms{0};
    std::atomic<uint64_t> schedule_ns{0};
  };

  // Of the limits, those that say how much is shared.
  explicit SharedCaches(const ExecutableCache::Limits& limits, KernelServices services = {})
      : kernels(limits.kernels, std::move(services)), schedules(limits.schedule_bytes) {}

  ExecutableCache::Stats stats() const;

  KernelCache kernels;
  ScheduleCache schedules;
  Counters counters;
  const std::shared_ptr<RunCounters> runs = std::make_shared<RunCounters>();
  const std::shared_ptr<AllTemporaries> temporaries = std::make_shared<AllTemporaries>();
};

}  // namespace telegrad
