// The production SysOps: each function is one call of the system.
#include "devices/hcq/sys_ops.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace telegrad::hcq {
namespace {

class MachineOps final : public SysOps {
 public:
  absl::StatusOr<int> Open(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, path);
    return fd;
  }
  absl::Status Close(int fd) override {
    return close(fd) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "close");
  }
  absl::Status Ioctl(int fd, uint32_t request, void* argument) override {
    while (ioctl(fd, request, argument) < 0) {
      if (errno != EINTR) return absl::ErrnoToStatus(errno, "ioctl");
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::byte*> Map(int fd, size_t length) override {
    const int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    void* address = mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
    return static_cast<std::byte*>(address);
  }
  absl::Status Unmap(std::byte* address, size_t length) override {
    return munmap(address, length) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "munmap");
  }
  // A full fence, which drains write-combining buffers too.
  void OrderStores() override { __sync_synchronize(); }
  void StoreDoorbell(volatile uint32_t* doorbell, uint32_t value) override {
    __sync_synchronize();
    *doorbell = value;
    __sync_synchronize();
  }
  void Pause() override { sched_yield(); }
  int64_t Ns() const override { return Clock::Steady()->Ns(); }
};

}  // namespace

SysOps& SystemOps() {
  static MachineOps ops;
  return ops;
}

}  // namespace telegrad::hcq
