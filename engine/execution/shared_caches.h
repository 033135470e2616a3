// What the caches of executables of several tenants have in common. Compiled kernels and schedules
// follow from graphs alone, so one copy serves all; which tenant has which executable, and whether
// it was cached, each tenant's own cache knows. (That something is compiled already shows in how
// long a first run takes, and only there.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/base/account.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/planned_executable.h"
#include "engine/execution/temporaries.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/schedule/schedule_cache.h"

namespace telegrad {

// Thread-safe.
struct SharedCaches {
  struct Limits {
    int64_t kernels = 8192;                      // compiled programs
    int64_t schedule_bytes = int64_t{64} << 20;  // of schedules kept, shared between devices
  };
  struct Stats {  // totals of all caches that share it
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t general_forms = 0;  // made, for ranges of variables
    uint64_t kernels_compiled = 0;
    uint64_t kernel_cache_hits = 0;
    uint64_t schedule_hits = 0;  // graphs scheduled before, for another device or an evicted form
    uint64_t schedule_ns = 0;
    uint64_t lower_ns = 0;
    uint64_t compile_ns = 0;
    uint64_t submissions = 0;
    uint64_t launches = 0;   // of kernels, submitted
    uint64_t segments = 0;   // that they were cut into
    int64_t bytes_sent = 0;  // from one device to another
    BoundsStats bounds;      // of the kernels compiled
  };
  struct Counters {
    std::atomic<uint64_t> hits{0};
    std::atomic<uint64_t> misses{0};
    std::atomic<uint64_t> general_forms{0};
    std::atomic<uint64_t> schedule_ns{0};
  };

  explicit SharedCaches(const Limits& limits, KernelServices services = {})
      : kernels(limits.kernels, std::move(services)), schedules(limits.schedule_bytes) {}

  Stats stats() const;

  KernelCache kernels;
  ScheduleCache schedules;
  Counters counters;
  const std::shared_ptr<RunCounters> runs = std::make_shared<RunCounters>();
  const std::shared_ptr<AllTemporaries> temporaries = std::make_shared<AllTemporaries>();
};

// What the caches of one tenant are charged to, and the order in which they used what they keep.
struct CacheAccounts {
  std::shared_ptr<Account> device_memory;  // temporaries and what runs hand over; null: unlimited
  std::shared_ptr<Account> cache;          // of kept_bytes; null: unlimited
  const std::shared_ptr<std::atomic<uint64_t>> clock = std::make_shared<std::atomic<uint64_t>>(0);

  uint64_t Now() const { return clock->fetch_add(1, std::memory_order_relaxed); }
  void Charge(int64_t bytes) const {
    if (cache != nullptr) cache->Charge(bytes);
  }
  void Release(int64_t bytes) const {
    if (cache != nullptr) cache->Release(bytes);
  }
};

}  // namespace telegrad
