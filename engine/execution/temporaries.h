// The memory for temporaries of all executables that one tenant has on a device's queue. Those of a
// class (see RunQueues) share it, because they run one after another. Whoever comes next finds
// there what the one before left; so it is only for executables that write each temporary before
// they read it (written_first.h), and the others get memory of their own, which the device has
// zeroed. No two tenants share any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/execution/run_queues.h"

namespace telegrad {

class Temporaries;

// The temporaries of all tenants, so that what some keep for their next run goes to who needs it
// now. Thread-safe.
class AllTemporaries {
 public:
  void Add(std::weak_ptr<Temporaries> temporaries);
  // Gives back what they keep on that device and no run uses.
  void Release(const Device& device);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Temporaries>> all_;
};

// Thread-safe.
class Temporaries {
 public:
  // Both may be null: nobody is charged; nobody else has any.
  explicit Temporaries(Device* device, std::shared_ptr<Account> account = nullptr,
                       std::shared_ptr<AllTemporaries> all = nullptr)
      : device_(*device), account_(std::move(account)), all_(std::move(all)) {}

  // `bytes` for a run that is about to be submitted: once this succeeds, memory cannot fail it any
  // more. A run in flight keeps what it was given. RESOURCE_EXHAUSTED, before anything is
  // allocated, says what is needed and which limit is in the way.
  absl::StatusOr<BufferView> Shared(int64_t bytes, int run_class = 0);
  absl::StatusOr<BufferView> Zeroed(int64_t bytes);

  // Gives back what no run in flight uses; the next run takes it anew.
  void Release();

 private:
  friend class AllTemporaries;
  absl::StatusOr<std::shared_ptr<Memory>> Allocate(int64_t bytes);
  bool HasRoom(int64_t bytes) const;

  Device& device_;
  const std::shared_ptr<Account> account_;
  const std::shared_ptr<AllTemporaries> all_;
  std::mutex mutex_;
  std::array<std::shared_ptr<Memory>, RunQueues::kClasses> memory_;
};

}  // namespace telegrad
