// The weights of all models, by content: equal weights of several forms, versions or models are
// on the device once, as long as any of these exists.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "server/pool/session_queues.h"
#include "server/tenant/tenant.h"

namespace telegrad {

// Thread-safe.
class WeightStore {
 public:
  // The weights lie on `device` and are charged to `owner`. All outlive this.
  WeightStore(const DevicePool* pool, Device* device, Tenant* owner)
      : pool_(*pool), device_(*device), owner_(*owner), queues_(pool, owner->share) {}

  // What is to be put on the device, and what it will take there that is not there yet.
  struct Plan {
    std::vector<std::string_view> contents;
    std::vector<Digest> digests;
    int64_t new_bytes = 0;
  };
  Plan MakePlan(std::vector<std::string_view> contents);
  int64_t NewBytes(const Plan& plan);  // as it is now
  // A view for each content, empty for one without bytes. Waits until they are there.
  absl::StatusOr<std::vector<BufferView>> Place(const Plan& plan, Budget* budget);
  // All that was put there is lost with the machine that had it.
  void Forget() {
    const MutexLock lock(mutex_);
    kept_.clear();
  }

 private:
  struct Kept {
    std::weak_ptr<Memory> memory;
    uint64_t content = 0;  // see BufferView
  };
  // Its memory is null where it is not there.
  BufferView Find(const Digest& digest, int64_t bytes);
  absl::StatusOr<std::shared_ptr<Memory>> Put(std::string_view content);

  const DevicePool& pool_;
  Device& device_;
  Tenant& owner_;
  SessionQueues queues_;
  Mutex mutex_;
  absl::flat_hash_map<Digest, Kept> kept_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
