// What the daemon tells of its devices: metrics, and a line of the log where one stops taking work.
#pragma once

#include <set>
#include <string>

#include "engine/execution/shared_caches.h"
#include "server/admin/metrics.h"
#include "server/pool/device_pool.h"

namespace telegrad {

void CollectFrom(const SharedCaches& caches, const DevicePool& pool, Metrics& metrics);

// Which devices take no work; said once when it begins and when it ends.
class LostDevices {
 public:
  explicit LostDevices(const DevicePool* pool) : pool_(pool) {}
  // Whether there are none.
  bool Look();

 private:
  const DevicePool* const pool_;
  std::set<std::string> lost_;
};

}  // namespace telegrad
