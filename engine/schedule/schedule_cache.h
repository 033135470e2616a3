// Schedules by content: what several devices, targets or executables that were evicted have in
// common. Bounded in bytes, evicted least recently used.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "engine/base/hash.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

class ScheduleCache {
 public:
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    int64_t bytes = 0;
  };

  explicit ScheduleCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // `hash` is the content hash of `sink`, the root of a verified tensor graph; `variables` as in
  // ScheduleGraph. Thread-safe; two who ask for the same at once both schedule it.
  absl::StatusOr<std::shared_ptr<const Schedule>> Get(const Digest& hash, UOp sink,
                                                      std::span<const VarValue> variables,
                                                      Budget* budget);
  Stats stats() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Schedule> schedule;
    int64_t bytes = 0;
  };

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> used_;  // most recently first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_;
  Stats stats_;
};

}  // namespace telegrad
