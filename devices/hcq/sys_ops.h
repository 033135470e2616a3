// Everything that a driver of hardware queues needs of the system: files of the kernel driver,
// their ioctls and mappings, stores that the device sees, and waiting. It is an interface, so
// that tests put a fake kernel driver and a fake device behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"

namespace telegrad::hcq {

// Errors are of errno: NOT_FOUND for ENOENT, PERMISSION_DENIED for EACCES and EPERM, and so on,
// with the system's words. The clock is monotonic.
class SysOps : public Clock {
 public:
  // For reading and writing; closed on exec.
  virtual absl::StatusOr<int> Open(const std::string& path) = 0;
  virtual absl::Status Close(int fd) = 0;
  virtual absl::Status Ioctl(int fd, uint32_t request, void* argument) = 0;
  // `length` bytes of the file from its start, shared, readable and writable. Zeroed memory of the
  // process's own where fd is -1.
  virtual absl::StatusOr<std::byte*> Map(int fd, size_t length) = 0;
  virtual absl::Status Unmap(std::byte* address, size_t length) = 0;
  // What this thread stored before is visible to the device before what it stores from now on,
  // through write-combining mappings too.
  virtual void OrderStores() = 0;
  // A store that a device acts on: all stores of this thread before it are visible to the device
  // first, those through write-combining mappings too.
  virtual void StoreDoorbell(volatile uint32_t* doorbell, uint32_t value) = 0;
  // Gives up the processor for a moment between two looks at memory that a device writes.
  virtual void Pause() = 0;
};

// The machine's own.
SysOps& SystemOps();

}  // namespace telegrad::hcq
