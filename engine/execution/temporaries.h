// The memory for temporaries of all executables of a device's queue. They share it, because the
// queue runs one submission after another. Whoever comes next finds there what the one before left;
// so it is only for executables that write each temporary before they read it
// (written_first.h), and the others get memory of their own, which the device has zeroed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

// Thread-safe.
class Temporaries {
 public:
  explicit Temporaries(Device* device) : device_(*device) {}

  // `bytes` for a run that is about to be submitted: once this succeeds, memory cannot fail it any
  // more. A run in flight keeps what it was given. RESOURCE_EXHAUSTED, before anything is
  // allocated, says what is needed, what is in use and the limit.
  absl::StatusOr<BufferView> Shared(int64_t bytes);
  absl::StatusOr<BufferView> Zeroed(int64_t bytes);

  // Gives back what no run in flight uses; the next run takes it anew.
  void Release();

 private:
  absl::StatusOr<std::shared_ptr<Memory>> Allocate(int64_t bytes);

  Device& device_;
  std::mutex mutex_;
  std::shared_ptr<Memory> memory_;
};

}  // namespace telegrad
