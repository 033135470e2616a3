// The memory for temporaries of all executables that one tenant has on a device's queue.
// Executables of a class (see RunQueues) share it, because they run one after another. The memory
// holds values of earlier runs, so it is only for executables that write each temporary before they
// read it (written_first.h); others get zeroed memory of their own. Tenants never share this
// memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "engine/execution/packed_copies.h"
#include "engine/execution/run_queues.h"

namespace telegrad {

class Temporaries;

// The temporaries of all tenants, so that memory kept for later runs can be given to a tenant that
// needs it now. Thread-safe.
class AllTemporaries {
 public:
  void Add(std::weak_ptr<Temporaries> temporaries);
  // Releases the memory on that device that no run uses, also of tenants that have the device as
  // another object (Device::ForTenant).
  void Release(const Device& device);

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<Temporaries>> all_ TG_GUARDED_BY(mutex_);
};

// Thread-safe.
class Temporaries {
 public:
  // Both may be null: then no account is charged, and no other temporaries are known.
  explicit Temporaries(Device* device, std::shared_ptr<Account> account = nullptr,
                       std::shared_ptr<AllTemporaries> all = nullptr)
      : device_(*device),
        device_name_(device->name()),
        account_(account),
        all_(std::move(all)),
        copies_(device, account) {}

  // Kept like the memory of the temporaries.
  PackedCopies& copies() { return copies_; }

  // `bytes` for a run that is about to be submitted: after success the run cannot fail for want of
  // memory. A run in flight keeps its memory. RESOURCE_EXHAUSTED, before anything is allocated,
  // states the bytes needed and the limit.
  absl::StatusOr<BufferView> Shared(int64_t bytes, int run_class = 0);
  absl::StatusOr<BufferView> Zeroed(int64_t bytes);

  // Releases memory that no run in flight uses; the next run allocates again.
  void Release();

 private:
  friend class AllTemporaries;
  using Memories = std::array<std::shared_ptr<Memory>, RunQueues::kClasses>;

  absl::StatusOr<std::shared_ptr<Memory>> Allocate(int64_t bytes);
  bool HasRoom(int64_t bytes) const;

  Device& device_;
  const std::string device_name_;  // for others, who may outlive a tenant's device
  const std::shared_ptr<Account> account_;
  const std::shared_ptr<AllTemporaries> all_;
  PackedCopies copies_;
  Mutex mutex_;
  Memories memory_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
