// What the daemon tells of its devices, and does for them: metrics, a line of the log where one is
// lost, and bringing it back.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/execution/shared_caches.h"
#include "server/admin/metrics.h"
#include "server/pool/device_pool.h"

namespace telegrad {

void CollectFrom(const SharedCaches& caches, const DevicePool& pool, Metrics& metrics);

// Which devices take no work; said once when it begins and when it ends. A device that is lost is
// brought back (Device::Recover): at the look after the one that found it lost, and where that
// fails, after 1 more look, 2 more, 4, and so on, up to 64.
class LostDevices {
 public:
  explicit LostDevices(const DevicePool* pool) : pool_(pool) {}
  // Whether there are none. May wait for a driver that brings a device back.
  bool Look();

 private:
  struct Loss {
    int64_t next = 0;  // the look at which it is tried
    int64_t pause = 1;
  };

  void TryToRecover(Device& device, Loss* loss);

  const DevicePool* const pool_;
  int64_t looks_ = 0;
  std::map<std::string, Loss> lost_;
};

}  // namespace telegrad
