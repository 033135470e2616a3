// Memory that processes share. The driver's own memory is on the heap of its process; the bytes of
// an allocation move to a memfd when a handle of it is made, and another process finds that below
// /proc by what the handle has of it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/state.h"

using fakecuda::Allocation;
using fakecuda::Call;
using fakecuda::DevicePointer;
using fakecuda::Driver;
using fakecuda::IpcHandle;

namespace {

constexpr unsigned int kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct Named {
  char magic[8];
  uint64_t number;  // of the allocation, which no other has
  uint64_t bytes;
  int32_t process;
  int32_t file;  // in that process
};
constexpr char kMagic[] = "FakeIpc";
static_assert(sizeof(Named) <= sizeof(IpcHandle));

std::string NameOf(uint64_t number) { return "fake_cuda_" + std::to_string(number); }

// The file's bytes, for as long as somebody keeps them; the file stays open, too.
std::shared_ptr<uint8_t> Map(int file, uint64_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  return {static_cast<uint8_t*>(at), [bytes, file](uint8_t* p) {
            munmap(p, bytes);
            close(file);
          }};
}

// The file that the handle names, below /proc; -1 for a handle that names none.
int FileOf(const Named& named) {
  const std::string path =
      "/proc/" + std::to_string(named.process) + "/fd/" + std::to_string(named.file);
  char target[256] = {};
  if (readlink(path.c_str(), target, sizeof(target) - 1) < 0) return -1;
  if (std::string(target) != "/memfd:" + NameOf(named.number) + " (deleted)") return -1;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about{};
  if (file >= 0 && (fstat(file, &about) != 0 ||
                    static_cast<uint64_t>(about.st_size) != named.bytes || named.bytes == 0)) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace

FAKE_CUDA_API int cuMemGetAddressRange_v2(DevicePointer* base, size_t* bytes,
                                          DevicePointer address) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const Allocation* const found = call.driver().FindDevice(address, 1);
  if (found == nullptr || found->internal) return fakecuda::CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->region.base;
  if (bytes != nullptr) *bytes = found->region.bytes;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuIpcGetMemHandle(IpcHandle* handle, DevicePointer address) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  Allocation* found = driver.FindDevice(address, 1);
  if (handle == nullptr || found == nullptr || found->internal || found->opened > 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  // The bytes move, so nothing may be at them.
  std::vector<std::shared_ptr<fakecuda::Marker>> last;
  for (const auto& [stream, state] : driver.streams) {
    if (!state->operations.empty()) last.push_back(state->operations.back().marks);
  }
  for (const auto& marker : last) fakecuda::WaitForMarker(driver, call.lock(), marker);
  found = driver.FindDevice(address, 1);
  if (found == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  fakecuda::Region& region = found->region;
  if (found->shared == 0) {
    found->shared = (static_cast<uint64_t>(getpid()) << 32) + driver.next_handle++;
    const int file = memfd_create(NameOf(found->shared).c_str(), MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(region.bytes)) != 0) {
      return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
    }
    const std::shared_ptr<uint8_t> moved = Map(file, region.bytes);
    if (moved == nullptr) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
    std::memcpy(moved.get(), region.host, region.bytes);
    region.host = moved.get();
    region.keep = moved;
    found->file = file;
  }
  Named named{.magic = {},
              .number = found->shared,
              .bytes = region.bytes,
              .process = getpid(),
              .file = found->file};
  std::memcpy(named.magic, kMagic, sizeof(kMagic));
  *handle = {};
  std::memcpy(handle->bytes, &named, sizeof(named));
  return fakecuda::CUDA_SUCCESS;
}

// Of a process's own memory it opens nothing, and what is open in the context is open once more.
FAKE_CUDA_API int cuIpcOpenMemHandle_v2(DevicePointer* address, IpcHandle handle,
                                        unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  Named named{};
  std::memcpy(&named, handle.bytes, sizeof(named));
  if (address == nullptr || flags != kLazyPeerAccess ||
      std::memcmp(named.magic, kMagic, sizeof(kMagic)) != 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  if (named.process == getpid()) return fakecuda::CUDA_ERROR_INVALID_CONTEXT;
  for (auto& [base, allocation] : driver.allocations) {
    if (allocation.opened == 0 || allocation.shared != named.number ||
        allocation.context != call.context().handle) {
      continue;
    }
    ++allocation.opened;
    *address = base;
    return fakecuda::CUDA_SUCCESS;
  }
  const int file = FileOf(named);
  if (file < 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<uint8_t> bytes = Map(file, named.bytes);
  if (bytes == nullptr) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  const DevicePointer base = fakecuda::MapDevice(driver, call.context().handle, named.bytes, bytes);
  if (base == 0) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  driver.allocations[base].shared = named.number;
  *address = base;
  return fakecuda::CUDA_SUCCESS;
}

// Takes the memory from what is still to run, as cuMemFree does.
FAKE_CUDA_API int cuIpcCloseMemHandle(DevicePointer address) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  ++driver.counters.ipc_closes;
  driver.done.wait(call.lock(), [&] { return driver.knobs.hold_ipc_close == 0; });
  const auto it = driver.allocations.find(address);
  if (it == driver.allocations.end() || it->second.opened == 0) {
    driver.Problem("cuIpcCloseMemHandle of what is not open (any more)");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  if (it->second.opened > 1) {
    --it->second.opened;
  } else {
    fakecuda::FreeDevice(driver, address);
  }
  return fakecuda::CUDA_SUCCESS;
}
