// Schedules by content: what several devices, targets or executables that were evicted have in
// common. Bounded in bytes, and fair between tenants.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/base/hash.h"
#include "engine/base/once_cache.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// Thread-safe.
class ScheduleCache {
 public:
  explicit ScheduleCache(int64_t max_bytes);

  // `hash` is the content hash of `sink`, the root of a verified tensor graph; all else as in
  // ScheduleGraph.
  absl::StatusOr<std::shared_ptr<const Schedule>> Get(const Digest& hash, UOp sink,
                                                      std::span<const VarValue> variables,
                                                      Budget* budget,
                                                      const ScheduleOptions& options = {});
  OnceCacheCounts counts() const { return cache_.counts(); }

 private:
  OnceCache<Schedule> cache_;
};

}  // namespace telegrad
