// What the daemon tells of its devices, and does for them: metrics, a line of the log where one is
// lost, and bringing it back.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/execution/shared_caches.h"
#include "server/admin/metrics.h"
#include "server/pool/device_pool.h"

namespace telegrad {

void CollectFrom(const SharedCaches& caches, const DevicePool& pool, Metrics& metrics);

// What the hardware of devices measures of itself, with the label device. What no device tells has
// no row.
std::vector<LabelledMetric> MetricsOfSensors(const DevicePool& pool);

// Which devices take no work; said once when it begins and when it ends. A device that is lost is
// brought back (Device::Recover): at the look after the one that found it lost, and where that
// fails, after 1 more look, 2 more, 4, and so on, up to 256. That runs on a thread for each device,
// because drivers take seconds; no look waits for it. Not thread-safe.
class LostDevices {
 public:
  explicit LostDevices(const DevicePool* pool) : pool_(pool) {}
  // Waits for what is under way.
  ~LostDevices() { AwaitRecoveries(); }
  LostDevices(const LostDevices&) = delete;
  LostDevices& operator=(const LostDevices&) = delete;

  // Whether there are none.
  bool Look();
  // Until no device is being brought back.
  void AwaitRecoveries();

 private:
  // A call of Device::Recover.
  struct Recovery {
    std::thread thread;
    std::atomic<bool> ended{false};
    absl::Status status;  // once it has
  };
  struct Loss {
    int64_t next = 0;  // the look at which it is tried
    int64_t pause = 1;
    std::unique_ptr<Recovery> recovery;  // under way, or ended and not told
  };

  void TryToRecover(Device& device, Loss* loss);
  void Tell(const Device& device, Loss* loss) const;

  const DevicePool* const pool_;
  int64_t looks_ = 0;
  std::map<std::string, Loss> lost_;
};

// Has devices give memory back to their drivers that nobody has used for `looks` looks at least,
// and twice as many at most; 0: never. A device that is at work is asked again at the next look.
// That runs on a thread for each device that holds some, for a driver may take long, and no look
// waits for it. Not thread-safe.
class IdleMemories {
 public:
  IdleMemories(const DevicePool* pool, int64_t looks) : pool_(pool), looks_(looks) {}
  ~IdleMemories() { Await(); }
  IdleMemories(const IdleMemories&) = delete;
  IdleMemories& operator=(const IdleMemories&) = delete;

  void Look();
  // Until no device is giving memory back.
  void Await();

 private:
  struct Return {
    std::thread thread;
    std::atomic<bool> ended{false};
    bool at_work = false;  // was the device, once it has ended
  };

  static std::unique_ptr<Return> Begin(const std::string& name, std::shared_ptr<IdleMemory> memory);

  const DevicePool* const pool_;
  const int64_t looks_;
  int64_t looked_ = 0;
  std::map<const Device*, std::unique_ptr<Return>> returns_;  // under way, or ended; or null
};

}  // namespace telegrad
