// Allocation of device and of pinned host memory.
#include <cstring>
#include <new>

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/state.h"

using fakecuda::Allocation;
using fakecuda::Call;
using fakecuda::DevicePointer;
using fakecuda::Driver;

namespace {

constexpr unsigned int kHostFlags = 7;  // PORTABLE, DEVICEMAP, WRITECOMBINED
constexpr unsigned int kDeviceMap = 2;
constexpr std::align_val_t kPage{4096};

}  // namespace

FAKE_CUDA_API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (free == nullptr || total == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  const auto& device = call.driver().devices[static_cast<size_t>(call.context().device)];
  const int64_t memory = call.driver().MemoryOf(device);
  *total = static_cast<size_t>(memory);
  *free = static_cast<size_t>(memory - device.used);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (address == nullptr || bytes == 0) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  DevicePointer base = 0;
  if (!fakecuda::Now(&call.driver().knobs.fail_allocation)) {
    base = fakecuda::AllocateDevice(call.driver(), call.context().handle, bytes, false);
  }
  if (base == 0) {
    ++call.driver().counters.refused_allocations;
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = base;
  return fakecuda::CUDA_SUCCESS;
}

// Takes the memory from what is still to run, at once: freeing too early is a fault.
FAKE_CUDA_API int cuMemFree_v2(DevicePointer address) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  ++driver.counters.frees;
  driver.done.wait(call.lock(), [&] { return driver.knobs.hold_free == 0; });
  const auto it = driver.allocations.find(address);
  if (it == driver.allocations.end() || it->second.internal || it->second.opened > 0) {
    driver.Problem("cuMemFree of what is no allocation (any more)");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  fakecuda::FreeDevice(driver, address);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemHostAlloc(void** host, size_t bytes, unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (host == nullptr || bytes == 0 || (flags & ~kHostFlags) != 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  if (call.driver().knobs.host_alloc_error != 0 && (flags & kDeviceMap) == 0) {
    return static_cast<int>(call.driver().knobs.host_alloc_error);
  }
  auto* const memory = static_cast<uint8_t*>(::operator new(bytes, kPage, std::nothrow));
  if (memory == nullptr) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(memory, 0xcd, bytes);
  const auto base = reinterpret_cast<uint64_t>(memory);
  Allocation& allocation = call.driver().host_allocations[base];
  allocation.context = call.context().handle;
  allocation.region = {
      .base = base,
      .bytes = bytes,
      .host = memory,
      .keep = std::shared_ptr<uint8_t>(memory, [](uint8_t* p) { ::operator delete(p, kPage); })};
  if ((flags & kDeviceMap) != 0) {
    allocation.mapped = fakecuda::TakeAddresses(bytes, fakecuda::kAllocationAlign);
  }
  ++call.driver().counters.live_host_allocations;
  *host = memory;
  return fakecuda::CUDA_SUCCESS;
}

// Memory of the caller, which stays where it is.
FAKE_CUDA_API int cuMemHostRegister_v2(void* host, size_t bytes, unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (host == nullptr || bytes == 0 || (flags & ~kHostFlags) != 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const auto base = reinterpret_cast<uint64_t>(host);
  if (call.driver().FindPinned(base, 1) != nullptr) {
    return fakecuda::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (call.driver().knobs.register_error != 0) {
    return static_cast<int>(call.driver().knobs.register_error);
  }
  const fakecuda::Counters& counters = call.driver().counters;
  if (call.driver().knobs.most_registrations >= 0 &&
      counters.host_registrations - counters.host_unregistrations >=
          call.driver().knobs.most_registrations) {
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* const memory = static_cast<uint8_t*>(host);
  Allocation& allocation = call.driver().host_allocations[base];
  allocation.context = call.context().handle;
  allocation.region = {.base = base,
                       .bytes = bytes,
                       .host = memory,
                       .keep = std::shared_ptr<uint8_t>(memory, [](uint8_t*) {})};
  ++call.driver().counters.host_registrations;
  ++call.driver().counters.live_host_allocations;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemHostUnregister(void* host) {
  Call call(Call::Needs::kContext);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  ++driver.counters.unregister_calls;
  driver.done.wait(call.lock(), [&] { return driver.knobs.hold_unregister == 0; });
  if (driver.knobs.unregister_error != 0) return static_cast<int>(driver.knobs.unregister_error);
  if (driver.host_allocations.erase(reinterpret_cast<uint64_t>(host)) == 0) {
    driver.Problem("cuMemHostUnregister of what is not registered (any more)");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  ++driver.counters.host_unregistrations;
  --driver.counters.live_host_allocations;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemFreeHost(void* host) {
  Call call(Call::Needs::kContext);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  if (driver.host_allocations.erase(reinterpret_cast<uint64_t>(host)) == 0) {
    driver.Problem("cuMemFreeHost of what is no allocation (any more)");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  --driver.counters.live_host_allocations;
  return fakecuda::CUDA_SUCCESS;
}

// With unified addressing the two would be the same, which programs must not rely on.
FAKE_CUDA_API int cuMemHostGetDevicePointer_v2(DevicePointer* address, void* host,
                                               unsigned int flags) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  const auto at = reinterpret_cast<uint64_t>(host);
  const Allocation* const found = call.driver().FindPinned(at, 1);
  if (address == nullptr || flags != 0 || found == nullptr || found->mapped == 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  *address = found->mapped + (at - found->region.base);
  return fakecuda::CUDA_SUCCESS;
}
