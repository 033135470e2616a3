// The part that the executable caches of several tenants share. Compiled kernels and schedules
// depend on graphs alone, so one copy serves all tenants; each tenant's own cache records which
// executables it has. (A tenant can notice that another one has compiled a kernel only by the time
// that its first run takes.)
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

  // The limits that concern shared entries.
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
