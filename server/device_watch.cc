#include "server/device_watch.h"

#include <algorithm>
#include <utility>

#include "engine/execution/executable_cache.h"
#include "server/admin/log.h"

namespace telegrad {

void CollectFrom(const SharedCaches& caches, const DevicePool& pool, Metrics& metrics) {
  const ExecutableCache::Stats stats = caches.stats();
  const std::pair<Metric, uint64_t> rows[] = {
      {Metric::kCompiled, stats.misses},
      {Metric::kKernelsCompiled, stats.kernels_compiled},
      {Metric::kKernelHits, stats.kernel_cache_hits},
      {Metric::kScheduleNs, stats.schedule_ns},
      {Metric::kLowerNs, stats.lower_ns},
      {Metric::kCompileNs, stats.compile_ns},
      {Metric::kAccessesProved, stats.bounds.proved},
      {Metric::kAccessesGated, stats.bounds.gated},
      {Metric::kAccessesByData, stats.bounds.data_dependent},
      {Metric::kLaunches, stats.launches},
      {Metric::kSegments, stats.segments},
  };
  for (const auto& [metric, count] : rows) metrics.Set(metric, static_cast<int64_t>(count));
  metrics.Set(Metric::kTransferBytes, stats.bytes_sent);
  int64_t healthy = 0, limit = 0, used = 0, footprint = 0, remote = 0, round_trip = 0;
  for (const auto& device : pool.devices()) {
    if (const auto link = device->link()) {
      ++remote;
      round_trip = std::max(round_trip, link->round_trip_ns);
    }
    healthy += device->Health().ok() ? 1 : 0;
    limit += device->memory_limit();
    used += device->memory_used();
    footprint += device->memory_footprint();
  }
  metrics.Set(Metric::kDevices, static_cast<int64_t>(pool.devices().size()));
  metrics.Set(Metric::kDevicesHealthy, healthy);
  metrics.Set(Metric::kRemoteDevices, remote);
  metrics.Set(Metric::kRemoteRoundTripNs, round_trip);
  metrics.Set(Metric::kDeviceMemory, limit);
  metrics.Set(Metric::kDeviceMemoryUsed, used);
  metrics.Set(Metric::kDeviceFootprint, footprint);
}

void LostDevices::TryToRecover(Device& device, Loss* loss) {
  if (looks_ < loss->next) return;
  constexpr int64_t kLongestPause = 64;
  loss->next = looks_ + loss->pause;
  loss->pause = std::min(2 * loss->pause, kLongestPause);
  const absl::Status status = device.Recover();
  // It may have come back by itself since, and some only do that.
  if (status.ok() || absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status)) return;
  Log(LogLevel::kWarning, "device_not_recovered",
      {{"name", device.name()},
       {"reason", status.message()},
       {"again_in_looks", loss->next - looks_}});
}

bool LostDevices::Look() {
  ++looks_;
  for (const auto& device : pool_->devices()) {
    const std::string& name = device->name();
    const absl::Status health = device->Health();
    const auto known = lost_.find(name);
    if (!health.ok() && known == lost_.end()) {
      lost_[name].next = looks_ + 1;
      Log(LogLevel::kError, "device_lost", {{"name", name}, {"reason", health.message()}});
    } else if (!health.ok()) {
      TryToRecover(*device, &known->second);
    }
    if (known == lost_.end() || !device->Health().ok()) continue;
    lost_.erase(known);
    Log(LogLevel::kInfo, "device_is_back",
        {{"name", name}, {"generation", static_cast<int64_t>(device->generation())}});
  }
  return lost_.empty();
}

}  // namespace telegrad
