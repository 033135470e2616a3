// Calls the kernel interface of abi_580.h and uvm_abi_580.h: one function for each kind of call.
// What a call makes is recorded and released by Release, in reverse order, so that a step that
// fails anywhere leaves nothing behind.
//
// An error's message names the call and the status: "RM_ALLOC of class 0xc86f: NV_ERR_NO_MEMORY
// (0x51): out of memory".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/hcq/sys_ops.h"
#include "devices/nv/abi_580.h"
#include "devices/nv/uvm_abi_580.h"

namespace telegrad::nv {

// "NV_ERR_NO_MEMORY (0x51): out of memory".
std::string DescribeRmStatus(uint32_t status);
absl::Status FromRmStatus(std::string_view call, uint32_t status);

class RmClient {
 public:
  explicit RmClient(hcq::SysOps& system)
      : system_(system), described_(std::make_shared<std::atomic<Handle>>(0xD0000000)) {}
  // Makes things under the same root, and gives back only those: before `other` does.
  RmClient(const RmClient& other, std::nullptr_t)
      : system_(other.system_),
        control_(other.control_),
        root_(other.root_),
        described_(other.described_) {}
  ~RmClient() { Release(); }
  RmClient(const RmClient&) = delete;
  RmClient& operator=(const RmClient&) = delete;

  absl::StatusOr<int> Open(const std::string& path);
  // Opens the control file and makes the root client, under which all objects are.
  absl::Status OpenControl();
  absl::Status MakeRoot();
  // A file of the GPU with this minor number, tied to the control file.
  absl::StatusOr<int> OpenDevice(uint32_t minor);
  absl::StatusOr<std::vector<CardInfo>> Cards();

  // `params` is the class's struct.
  template <typename Params>
  absl::StatusOr<Handle> Alloc(Handle parent, uint32_t object_class, Params params) {
    return AllocBytes(parent, object_class, &params, sizeof(params));
  }
  absl::StatusOr<Handle> Alloc(Handle parent, uint32_t object_class) {
    return AllocBytes(parent, object_class, nullptr, 0);
  }
  template <typename Params>
  absl::Status Control(Handle object, uint32_t command, Params& params) {
    return ControlBytes(object, command, &params, sizeof(params));
  }
  // Memory of this process, which the GPU may then be given.
  absl::StatusOr<Handle> DescribeMemory(Handle device, int device_fd, std::byte* memory,
                                        size_t bytes);
  // Anonymous memory of this process.
  absl::StatusOr<std::byte*> MapAnonymous(size_t bytes) { return Map(-1, bytes); }
  // An object's memory in this process: through a file of its GPU, or the control file's like for
  // memory of the system.
  absl::StatusOr<std::byte*> MapObject(Handle device, Handle object, int fd, size_t bytes);
  absl::Status MapDma(Handle device, Handle dma, Handle memory, uint64_t address, uint64_t bytes);

  // One ioctl of the unified memory's file; Params ends in a status.
  template <typename Params>
  absl::Status Uvm(int fd, std::string_view call, uint32_t request, Params& params) {
    if (absl::Status status = Ioctl(fd, call, request, &params); !status.ok()) return status;
    return FromRmStatus(call, params.status);
  }
  // Calls `release` when everything is given back, before what was made until now.
  void OnRelease(std::string what, std::function<absl::Status()> release) {
    releases_.push_back({std::move(what), std::move(release)});
  }

  Handle root() const { return root_; }
  int control() const { return control_; }
  hcq::SysOps& system() { return system_; }

  // Gives everything back; what could not be, with the reason.
  std::vector<std::string> Release();

 private:
  struct Undo {
    std::string what;
    std::function<absl::Status()> run;
  };

  absl::Status Ioctl(int fd, std::string_view call, uint32_t request, void* params);
  template <typename Params>
  absl::Status Rm(int fd, std::string_view call, uint32_t number, Params& params) {
    return Ioctl(fd, call, RmRequest(number, sizeof(Params)), &params);
  }
  absl::StatusOr<Handle> AllocBytes(Handle parent, uint32_t object_class, void* params,
                                    size_t bytes);
  absl::Status ControlBytes(Handle object, uint32_t command, void* params, size_t bytes);
  absl::StatusOr<std::byte*> Map(int fd, size_t bytes);
  void FreeOnRelease(Handle parent, Handle object, std::string what);

  hcq::SysOps& system_;
  int control_ = -1;
  Handle root_ = 0;
  std::shared_ptr<std::atomic<Handle>> described_;  // handles of our choice, for DescribeMemory
  std::vector<Undo> releases_;
};

}  // namespace telegrad::nv
