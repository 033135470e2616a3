// Memory of devices: allocations, of several kinds, and views of their bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

// Where the bytes of a memory are, and who has them.
enum class MemoryKind : uint8_t {
  kDevice,      // the device's own
  kPinnedHost,  // of the host, which the device reads and writes itself
  kExported,    // the device's own, which another process may open, too: Device::ExportHandle
  kImported,    // another process's: Device::ImportHandle
};

inline std::string_view NameOf(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"device", "pinned host", "exported", "imported"};
  return kNames[static_cast<size_t>(kind)];
}

// A raw allocation. It returns to its device when the last reference goes; a submission holds a
// reference to each allocation that it uses until it has ended, so dropping a reference never
// blocks and never races.
class Memory {
 public:
  virtual ~Memory() = default;
  int64_t size() const { return size_; }
  // The bytes, where the host can address them; else null.
  void* host() const { return host_; }
  // Whether commands may write it.
  bool writable() const { return writable_; }
  MemoryKind kind() const { return kind_; }
  // OK, or why its contents are gone: its device was lost and has come back without them, see
  // IsDeviceLost. Work with it fails with that.
  virtual absl::Status Health() const { return absl::OkStatus(); }

 protected:
  Memory(void* host, int64_t size, bool writable = true, MemoryKind kind = MemoryKind::kDevice)
      : host_(host), size_(size), writable_(writable), kind_(kind) {}

 private:
  void* host_;
  int64_t size_;
  bool writable_;
  MemoryKind kind_;
};

// Memory of the driver that a device holds for its next allocations. Thread-safe, and may outlive
// the device.
class IdleMemory {
 public:
  virtual ~IdleMemory() = default;
  // Gives back to the driver what no allocation has used since the call before; how many bytes it
  // was. FAILED_PRECONDITION while the device is at work, which would have to wait for it or it for
  // that; then it may be asked again, as if it had not been. It takes as long as the driver does,
  // while others use the device.
  virtual absl::StatusOr<int64_t> GiveBack() = 0;
};

// A flat part of an allocation, in bytes.
struct BufferView {
  std::shared_ptr<Memory> memory;
  int64_t offset = 0;
  int64_t length = 0;
  // The contents of the memory by number, so that what is made of them can be kept; 0: unknown.
  // Whoever owns the memory gives them a new number whenever something that writes it is submitted:
  // views of one number and offset hold the same bytes.
  uint64_t content = 0;
};

// A number for contents that has not been given before.
inline uint64_t NewContent() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace telegrad
