// A strict stand-in for NVIDIA's kernel driver, personality GH100 with branch 580: the files, the
// resource manager's tree of objects, unified memory, and a FakeGpu behind the doorbell. It reads
// the ioctls' structs by offset, as NVIDIA's headers lay them out, and not by our declarations.
//
// Strict: an unknown class, command, size, handle or state is refused with the driver's status; an
// object is freed after its children and after its mappings. `Live` names what was never given
// back.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "devices/hcq/sys_ops.h"
#include "tests/fakes/nv/fake_gpu.h"

namespace telegrad::fakes {

// What goes wrong.
struct FakeFaults {
  std::set<std::string> missing, denied;  // files
  int fail_call = -1;                     // which ioctl from 0 is answered with...
  uint32_t fail_status = 0;               // ...this status, or, where 0, with EINVAL
  bool lose_doorbell = false;             // stores to it go nowhere
  bool no_progress = false;               // the GPU never does its work
  int fail_system = -1;                   // which open or mapping from 0 is refused
};

struct Escape;

// Thread-safe, but for its members, which are set while nobody else uses it, or under `Locked`.
class FakeDriver final : public hcq::SysOps {
 public:
  FakeDriver();
  ~FakeDriver() override;

  // From here on the GPU works on a thread of its own, and time is the machine's.
  void Start();
  // Calls `function` while neither the GPU nor a call is at work.
  template <typename Function>
  auto Locked(Function function) {
    const std::lock_guard lock(mutex_);
    return function();
  }

  absl::StatusOr<int> Open(const std::string& path) override;
  absl::Status Close(int fd) override;
  absl::Status Ioctl(int fd, uint32_t request, void* argument) override;
  absl::StatusOr<std::byte*> Map(int fd, size_t length) override;
  absl::Status Unmap(std::byte* address, size_t length) override;
  void OrderStores() override;
  void StoreDoorbell(volatile uint32_t* doorbell, uint32_t value) override;
  void Pause() override;  // the GPU works; a millisecond passes
  int64_t Ns() const override;

  std::vector<std::string> Live() const;
  // Whether memory of the process that begins at `memory` is pinned. Under `Locked`.
  bool IsPinned(const std::byte* memory) const;
  int calls() const { return static_cast<int>(calls_.size()); }
  const std::vector<std::string>& call_names() const { return calls_; }
  int system_calls() const { return system_calls_; }

  FakeFaults faults;
  std::string version = "580.142";
  int cards = 1;
  uint64_t video_bytes = uint64_t{1} << 30;
  std::set<uint32_t> classes = {0xC661, 0xC86F, 0xCBC0, 0xC8B5, 0x90F1, 0xA06C, 0x9067};
  FakeGpu gpu;

 private:
  enum class FileKind : uint8_t { kControl, kDevice, kUvm };
  struct File {
    FileKind kind;
    std::string path;
    bool registered = false;     // with the control file
    bool initialized = false;    // UVM
    uint32_t mapped_object = 0;  // what an mmap of it would map
    size_t mapped_bytes = 0;
  };
  struct Object {
    uint32_t object_class, parent;
    std::shared_ptr<FakeMemory> memory = nullptr;
    std::shared_ptr<FakeChannel> channel = nullptr;
    uint32_t share_of = 0;  // the address space of a context share
    int users = 0;          // mappings and registrations that hold it
  };
  struct Mapping {
    size_t bytes;
    int fd;  // -1: anonymous
    std::shared_ptr<FakeMemory> memory;
  };
  struct RmMapping {
    uint32_t object;
    int fd;
  };

  bool Work();
  void Serve();
  absl::Status IoctlLocked(int fd, uint32_t request, void* argument);
  bool RefusesSystemCall() { return system_calls_++ == faults.fail_system; }
  std::string CallName(const File& file, uint32_t request, const std::byte* argument) const;
  absl::Status Rm(File& file, const Escape& escape, std::byte* argument);
  uint32_t Alloc(std::byte* argument, uint32_t object_class, const std::byte* params,
                 uint32_t bytes);
  uint32_t FillObject(Object& object, const std::byte* params);
  uint32_t Free(uint32_t parent, uint32_t handle);
  uint32_t Control(uint32_t handle, uint32_t command, std::byte* params, uint32_t bytes);
  uint32_t Descriptor(const File& file, std::byte* argument);
  bool LetGo(const Object& pinned);
  uint32_t MapMemory(std::byte* argument);
  uint32_t UnmapMemory(const std::byte* argument);
  uint32_t MapDma(std::byte* argument);
  uint32_t UnmapDma(const std::byte* argument);
  // Unified memory (fake_uvm.cc). Where a request's status is; 0: there is no such request.
  static size_t UvmStatusAt(uint32_t request);
  uint32_t Uvm(File& file, uint32_t request, std::byte* argument);
  uint32_t MakeRange(uint64_t base, uint64_t bytes);
  uint32_t FreeRange(uint64_t base, uint64_t bytes);
  uint32_t MapRange(const std::byte* argument);
  uint32_t RegisterChannel(const std::byte* argument);
  bool IsControl(int fd) const;

  Object* Find(uint32_t handle, uint32_t object_class = 0);
  Object* FindMemory(uint32_t handle);

  std::map<int, File> files_;
  std::map<uint32_t, Object> objects_;
  std::map<std::byte*, Mapping> mappings_;
  std::map<uint64_t, RmMapping> rm_mappings_;  // by the address that RM_MAP_MEMORY returned
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> dma_;  // address: bytes, memory
  std::map<uint64_t, uint32_t> range_memory_;              // UVM range: memory that is mapped there
  std::map<uint32_t, uint64_t> uvm_channels_;              // channel: its range
  uint32_t root_ = 0, next_handle_ = 0xCAF00000, uvm_va_space_ = 0;
  bool uvm_gpu_ = false;
  uint64_t next_cookie_ = 0x7F0000000000;
  int next_fd_ = 100;
  uint64_t video_used_ = 0;
  std::vector<std::string> calls_;
  int system_calls_ = 0;
  int64_t now_ = 1'000'000'000;
  std::mt19937_64 random_{7};

  mutable std::mutex mutex_;
  std::condition_variable rung_;
  std::atomic<bool> threaded_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace telegrad::fakes
