#include "server/device_watch.h"

#include <algorithm>
#include <utility>

#include "engine/base/thread.h"
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
      {Metric::kLoweredAgain, stats.kernels_lowered_again},
      {Metric::kLeftToDriver, stats.kernels_left_to_driver},
      {Metric::kLaunches, stats.launches},
      {Metric::kSegments, stats.segments},
      {Metric::kPartitions, stats.partitions},
      {Metric::kPartitionsForValues, stats.partitions_for_values},
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

std::vector<LabelledMetric> MetricsOfSensors(const DevicePool& pool) {
  std::vector<std::pair<std::string, Readings>> devices;
  for (const auto& device : pool.devices()) {
    if (const auto sensors = device->sensors()) {
      devices.emplace_back(device->name(), sensors->Read());
    }
  }
  std::vector<LabelledMetric> out;
  const auto add = [&](Sensor sensor, LabelledMetric metric) {
    for (const auto& [name, readings] : devices) {
      const std::optional<double>& value = readings[sensor];
      if (value) metric.samples.push_back({.labels = {{"device", name}}, .value = *value});
    }
    if (!metric.samples.empty()) out.push_back(std::move(metric));
  };
#define SENSOR(sensor, metric, of_kind, text) \
  add(Sensor::sensor, {.name = metric, .kind = MetricInfo::of_kind, .help = text});
#include "devices/api/sensors.def"
#undef SENSOR
  return out;
}

void LostDevices::TryToRecover(Device& device, Loss* loss) {
  if (looks_ < loss->next || loss->recovery != nullptr) return;
  constexpr int64_t kLongestPause = 256;
  loss->next = looks_ + loss->pause;
  loss->pause = std::min(2 * loss->pause, kLongestPause);
  auto recovery = std::make_unique<Recovery>();
  auto thread = StartThread([&device, here = recovery.get()] {
    here->status = device.Recover();
    here->ended.store(true);
  });
  if (!thread.ok()) {
    Log(LogLevel::kWarning, "device_not_recovered",
        {{"name", device.name()}, {"reason", thread.status().message()}});
    return;
  }
  recovery->thread = *std::move(thread);
  loss->recovery = std::move(recovery);
}

// What an attempt has come to, if it has ended.
void LostDevices::Tell(const Device& device, Loss* loss) const {
  if (loss->recovery == nullptr || !loss->recovery->ended.load()) return;
  const std::unique_ptr<Recovery> recovery = std::move(loss->recovery);
  if (recovery->thread.joinable()) recovery->thread.join();
  const absl::Status& status = recovery->status;
  // It may have come back by itself since, and some only do that.
  if (status.ok() || absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status)) return;
  Log(LogLevel::kWarning, "device_not_recovered",
      {{"name", device.name()},
       {"reason", status.message()},
       {"again_in_looks", std::max<int64_t>(loss->next - looks_, 0)}});
}

void LostDevices::AwaitRecoveries() {
  for (auto& [name, loss] : lost_) {
    if (loss.recovery != nullptr && loss.recovery->thread.joinable()) loss.recovery->thread.join();
  }
}

bool LostDevices::Look() {
  ++looks_;
  for (const auto& device : pool_->devices()) {
    const std::string& name = device->name();
    const auto known = lost_.find(name);
    if (known != lost_.end()) Tell(*device, &known->second);
    const absl::Status health = device->Health();
    if (!health.ok() && known == lost_.end()) {
      lost_[name].next = looks_ + 1;
      Log(LogLevel::kError, "device_lost", {{"name", name}, {"reason", health.message()}});
    } else if (!health.ok()) {
      TryToRecover(*device, &known->second);
    } else if (known != lost_.end() && known->second.recovery == nullptr) {
      lost_.erase(known);
      Log(LogLevel::kInfo, "device_is_back",
          {{"name", name}, {"generation", static_cast<int64_t>(device->generation())}});
    }
  }
  return lost_.empty();
}

void IdleMemories::Look() {
  if (looks_ == 0) return;
  const bool all = ++looked_ % looks_ == 0;
  for (const auto& device : pool_->devices()) {
    std::unique_ptr<Return>& last = returns_[device.get()];
    if (last != nullptr && !last->ended.load()) continue;  // later
    const bool again = last != nullptr && last->at_work;
    if (last != nullptr && last->thread.joinable()) last->thread.join();
    last = nullptr;
    if (!all && !again) continue;
    if (auto memory = device->idle_memory()) last = Begin(device->name(), std::move(memory));
  }
}

// Null where the system starts no thread now.
std::unique_ptr<IdleMemories::Return> IdleMemories::Begin(const std::string& name,
                                                          std::shared_ptr<IdleMemory> memory) {
  auto out = std::make_unique<Return>();
  auto thread = StartThread([name, memory = std::move(memory), here = out.get()] {
    const absl::StatusOr<int64_t> bytes = memory->GiveBack();
    here->at_work = absl::IsFailedPrecondition(bytes.status());
    if (!bytes.ok() && !here->at_work) {
      Log(LogLevel::kWarning, "idle_memory_not_given_back",
          {{"name", name}, {"reason", bytes.status().message()}});
    } else if (bytes.ok() && *bytes > 0) {
      Log(LogLevel::kInfo, "idle_memory_given_back", {{"name", name}, {"bytes", *bytes}});
    }
    here->ended.store(true);
  });
  if (!thread.ok()) return nullptr;
  out->thread = *std::move(thread);
  return out;
}

void IdleMemories::Await() {
  for (auto& [device, last] : returns_) {
    if (last != nullptr && last->thread.joinable()) last->thread.join();
  }
}

}  // namespace telegrad
