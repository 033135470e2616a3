#include "engine/schedule/schedule_cache.h"

#include <algorithm>
#include <vector>

namespace telegrad {
namespace {

std::string Key(const Digest& hash, std::span<const VarValue> variables) {
  std::string key(hash.view());
  std::vector<VarValue> sorted(variables.begin(), variables.end());
  std::ranges::sort(sorted);
  for (const VarValue& v : sorted) StrAppend(&key, " ", v.id, "=", v.value);
  return key;
}

int64_t BytesOf(const Schedule& schedule) {
  auto bytes =
      static_cast<int64_t>(sizeof(Schedule) + schedule.temporaries.size() * sizeof(Temporary));
  for (const ScheduledKernel& kernel : schedule.kernels) {
    bytes += kernel.graph.graph->bytes() + static_cast<int64_t>(sizeof(ScheduledKernel)) +
             static_cast<int64_t>(kernel.arguments.size() * sizeof(BufferRef));
    for (const std::string& reason : kernel.reasons) bytes += static_cast<int64_t>(reason.size());
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Schedule>> ScheduleCache::Get(
    const Digest& hash, UOp sink, std::span<const VarValue> variables, Budget* budget) {
  std::string key = Key(hash, variables);
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = by_key_.find(key); it != by_key_.end()) {
      ++stats_.hits;
      used_.splice(used_.begin(), used_, it->second);
      return it->second->schedule;
    }
    ++stats_.misses;
  }
  TG_ASSIGN_OR_RETURN(Schedule made, ScheduleGraph(sink, variables, budget));
  auto schedule = std::make_shared<const Schedule>(std::move(made));
  const int64_t bytes = BytesOf(*schedule);
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || by_key_.contains(key)) return schedule;
  while (stats_.bytes + bytes > max_bytes_) {
    stats_.bytes -= used_.back().bytes;
    by_key_.erase(used_.back().key);
    used_.pop_back();
  }
  stats_.bytes += bytes;
  used_.push_front({key, schedule, bytes});
  by_key_.emplace(std::move(key), used_.begin());
  return schedule;
}

ScheduleCache::Stats ScheduleCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace telegrad
