// Mapped memory is one range of the host's addresses for each reservation, so that bytes of
// neighbouring mappings follow each other; a mapping puts the file of its memory there.
#include "tests/fakes/cuda/virtual_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/scheduler.h"
#include "tests/fakes/cuda/work.h"

namespace fakecuda {
namespace {

constexpr int kPinned = 1, kOnDevice = 1;     // CUmemAllocationType, CUmemLocationType
constexpr int kNoAccess = 0, kReadWrite = 3;  // CUmemAccess_flags; the fake has no others

bool HasAny(const std::set<int>& of, const std::set<int>& devices) {
  return std::any_of(devices.begin(), devices.end(), [&](int d) { return of.contains(d); });
}

// The reservation that has all the bytes.
std::map<DevicePointer, Reservation>::const_iterator Find(const Driver& driver,
                                                          DevicePointer address, uint64_t bytes) {
  auto it = driver.reservations.upper_bound(address);
  if (it == driver.reservations.begin()) return driver.reservations.end();
  --it;
  const uint64_t offset = address - it->first;
  const bool inside = offset < it->second.bytes && bytes <= it->second.bytes - offset;
  return inside ? it : driver.reservations.end();
}

// Whether the bytes are whole mappings, one after the other.
bool AreWholeMappings(const Driver& driver, DevicePointer address, uint64_t bytes) {
  const DevicePointer end = address + bytes;
  while (address < end) {
    const auto it = driver.mappings.find(address);
    if (it == driver.mappings.end()) return false;
    address += it->second.bytes;
  }
  return bytes > 0 && address == end;
}

bool IsGranular(const Driver& driver, uint64_t value) {
  return value % static_cast<uint64_t>(driver.knobs.granularity) == 0;
}

bool IsDevice(const Driver& driver, const MemoryLocation& location) {
  return location.type == kOnDevice && location.id >= 0 &&
         static_cast<size_t>(location.id) < driver.devices.size();
}

Result CheckProperties(const Driver& driver, const AllocationProperties* properties) {
  if (driver.knobs.virtual_memory == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties == nullptr || properties->type != kPinned || properties->handle_types != 0 ||
      properties->win32_meta_data != nullptr || properties->compression != 0 ||
      properties->rdma_capable != 0 || properties->usage != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return IsDevice(driver, properties->location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

void CountPeerAccess(Driver& driver, const Mapping& mapping, int64_t sign) {
  for (const int device : mapping.access) {
    if (device != driver.physical.at(mapping.physical).device) {
      driver.counters.live_peer_access += sign;
    }
  }
}

void FreeIfUnused(Driver& driver, Handle handle) {
  const auto it = driver.physical.find(handle);
  const PhysicalMemory& memory = it->second;
  if (!memory.released || memory.mapped > 0) return;
  const auto bytes = static_cast<int64_t>(memory.bytes);
  driver.devices[static_cast<size_t>(memory.device)].used -= bytes;
  driver.counters.live_bytes -= bytes;
  --driver.counters.live_allocations;
  close(memory.file);
  driver.physical.erase(it);
}

uint8_t* HostOf(const Driver& driver, DevicePointer address) {
  const auto it = Find(driver, address, 1);
  return it->second.host.get() + (address - it->first);
}

}  // namespace

bool IsMapped(const Driver& driver, DevicePointer address, uint64_t bytes,
              const std::set<int>& devices, bool of_its_own) {
  auto it = driver.mappings.upper_bound(address);
  if (it == driver.mappings.begin()) return false;
  --it;
  const DevicePointer end = address + bytes;
  for (DevicePointer at = address; at < end; ++it) {
    if (it == driver.mappings.end() || it->first > at || at - it->first >= it->second.bytes) {
      return false;
    }
    if (!HasAny(it->second.access, devices)) return false;
    if (of_its_own && !devices.contains(driver.physical.at(it->second.physical).device)) {
      return false;
    }
    at = it->first + it->second.bytes;
  }
  return Find(driver, address, bytes) != driver.reservations.end();
}

void AddMapped(const Driver& driver, const std::set<int>& devices, MemoryView* view) {
  for (const auto& [base, reservation] : driver.reservations) {
    Region* last = nullptr;
    for (auto it = driver.mappings.lower_bound(base);
         it != driver.mappings.end() && it->first - base < reservation.bytes; ++it) {
      if (!HasAny(it->second.access, devices)) continue;
      if (last != nullptr && last->base + last->bytes == it->first) {
        last->bytes += it->second.bytes;
        continue;
      }
      last = &view->emplace_back(Region{.base = it->first,
                                        .bytes = it->second.bytes,
                                        .host = reservation.host.get() + (it->first - base),
                                        .keep = reservation.host});
    }
  }
}

void DropVirtualMemory(Driver& driver) {
  driver.mappings.clear();
  for (const auto& [handle, memory] : driver.physical) close(memory.file);
  driver.physical.clear();
  driver.reservations.clear();
}

}  // namespace fakecuda

using fakecuda::Call;
using fakecuda::DevicePointer;
using fakecuda::Driver;
using fakecuda::Handle;

FAKE_CUDA_API int cuMemGetAllocationGranularity(size_t* granularity,
                                                const fakecuda::AllocationProperties* properties,
                                                int option) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  if (granularity == nullptr || option < 0 || option > 1) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const auto result = fakecuda::CheckProperties(call.driver(), properties);
  if (result == fakecuda::CUDA_SUCCESS) {
    *granularity = static_cast<size_t>(call.driver().knobs.granularity);
  }
  return result;
}

FAKE_CUDA_API int cuMemAddressReserve(DevicePointer* address, size_t bytes, size_t alignment,
                                      DevicePointer wish, unsigned long long flags) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  if (driver.knobs.virtual_memory == 0) return fakecuda::CUDA_ERROR_NOT_SUPPORTED;
  if (address == nullptr || bytes == 0 || !fakecuda::IsGranular(driver, bytes) ||
      (alignment & (alignment - 1)) != 0 || wish != 0 || flags != 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  void* const host =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  const std::shared_ptr<uint8_t> kept(static_cast<uint8_t*>(host),
                                      [bytes](uint8_t* at) { munmap(at, bytes); });
  const DevicePointer base = fakecuda::TakeAddresses(
      bytes, std::max<uint64_t>(alignment, static_cast<uint64_t>(driver.knobs.granularity)));
  if (base == 0) return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  driver.reservations[base] = {.bytes = bytes, .host = kept};
  ++driver.counters.live_reservations;
  *address = base;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemAddressFree(DevicePointer address, size_t bytes) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  const auto it = driver.reservations.find(address);
  if (it == driver.reservations.end() || it->second.bytes != bytes) {
    driver.Problem("cuMemAddressFree of what is no reservation (any more)");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const auto mapped = driver.mappings.lower_bound(address);
  if (mapped != driver.mappings.end() && mapped->first - address < bytes) {
    driver.Problem("cuMemAddressFree of addresses where memory is mapped");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  driver.reservations.erase(it);
  --driver.counters.live_reservations;
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemCreate(Handle* handle, size_t bytes,
                              const fakecuda::AllocationProperties* properties,
                              unsigned long long flags) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  if (handle == nullptr || bytes == 0 || !fakecuda::IsGranular(driver, bytes) || flags != 0) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const auto result = fakecuda::CheckProperties(driver, properties);
  if (result != fakecuda::CUDA_SUCCESS) return result;
  if (driver.knobs.create_error != 0) return static_cast<int>(driver.knobs.create_error);
  auto& device = driver.devices[static_cast<size_t>(properties->location.id)];
  const auto charged = static_cast<int64_t>(bytes);
  if (fakecuda::Now(&driver.knobs.fail_allocation) ||
      charged > driver.MemoryOf(device) - device.used) {
    ++driver.counters.refused_allocations;
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  const int file = memfd_create("fake_cuda_physical", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) {
    close(file);
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memset(at, 0xcd, bytes);
  munmap(at, bytes);
  *handle = driver.NewHandle();
  driver.physical[*handle] = {.device = properties->location.id, .bytes = bytes, .file = file};
  device.used += charged;
  ++driver.counters.memories_created;
  ++driver.counters.allocations;
  ++driver.counters.live_allocations;
  driver.counters.live_bytes += charged;
  return fakecuda::CUDA_SUCCESS;
}

// Memory that is mapped stays until it is mapped no more.
FAKE_CUDA_API int cuMemRelease(Handle handle) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  const auto it = driver.physical.find(handle);
  if (it == driver.physical.end() || it->second.released) {
    driver.Problem("cuMemRelease of what is no memory (any more)");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  it->second.released = true;
  fakecuda::FreeIfUnused(driver, handle);
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemMap(DevicePointer address, size_t bytes, size_t offset, Handle handle,
                           unsigned long long flags) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  const auto memory = driver.physical.find(handle);
  if (memory == driver.physical.end() || memory->second.released || bytes == 0 || offset != 0 ||
      flags != 0 || bytes > memory->second.bytes || !fakecuda::IsGranular(driver, address) ||
      !fakecuda::IsGranular(driver, bytes) ||
      fakecuda::Find(driver, address, bytes) == driver.reservations.end()) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  auto next = driver.mappings.lower_bound(address);
  bool overlaps = next != driver.mappings.end() && next->first - address < bytes;
  if (next != driver.mappings.begin()) {
    --next;
    overlaps |= address - next->first < next->second.bytes;
  }
  if (overlaps) {
    driver.Problem("cuMemMap to addresses where memory is mapped");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  if (mmap(fakecuda::HostOf(driver, address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           memory->second.file, 0) == MAP_FAILED) {
    return fakecuda::CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver.mappings[address] = {.bytes = bytes, .physical = handle, .access = {}};
  ++memory->second.mapped;
  ++driver.counters.maps;
  ++driver.counters.live_mappings;
  return fakecuda::CUDA_SUCCESS;
}

// Takes the memory from what is still to run, at once: unmapping too early is a fault.
FAKE_CUDA_API int cuMemUnmap(DevicePointer address, size_t bytes) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  ++driver.counters.unmaps;
  driver.done.wait(call.lock(), [&] { return driver.knobs.hold_unmap == 0; });
  fakecuda::AwaitRunning(call);  // which sees its memory until it ends
  if (!fakecuda::AreWholeMappings(driver, address, bytes)) {
    driver.Problem("cuMemUnmap of other than whole mappings");
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  mmap(fakecuda::HostOf(driver, address), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const DevicePointer end = address + bytes;
  while (address < end) {
    const auto it = driver.mappings.find(address);
    const Handle handle = it->second.physical;
    address += it->second.bytes;
    fakecuda::CountPeerAccess(driver, it->second, -1);
    driver.mappings.erase(it);
    --driver.counters.live_mappings;
    --driver.physical.at(handle).mapped;
    fakecuda::FreeIfUnused(driver, handle);
  }
  return fakecuda::CUDA_SUCCESS;
}

FAKE_CUDA_API int cuMemSetAccess(DevicePointer address, size_t bytes,
                                 const fakecuda::AccessDescription* descriptions, size_t count) {
  Call call(Call::Needs::kDriver);
  FAKE_RETURN_IF_FAILED(call);
  Driver& driver = call.driver();
  if (descriptions == nullptr || count == 0 ||
      !fakecuda::AreWholeMappings(driver, address, bytes)) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  const auto first = driver.mappings.find(address);
  const auto last = driver.mappings.lower_bound(address + bytes);
  for (size_t i = 0; i < count; ++i) {
    const auto& [location, flags] = descriptions[i];
    if (flags != fakecuda::kNoAccess && flags != fakecuda::kReadWrite) {
      return fakecuda::CUDA_ERROR_INVALID_VALUE;
    }
    if (!fakecuda::IsDevice(driver, location)) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
    for (auto it = first; it != last; ++it) {
      const bool own = driver.physical.at(it->second.physical).device == location.id;
      if (!own && driver.knobs.peer_access == 0) return fakecuda::CUDA_ERROR_INVALID_DEVICE;
    }
  }
  for (auto it = first; it != last; ++it) {
    fakecuda::CountPeerAccess(driver, it->second, -1);
    for (size_t i = 0; i < count; ++i) {
      const auto& [location, flags] = descriptions[i];
      if (flags == fakecuda::kReadWrite) {
        it->second.access.insert(location.id);
      } else {
        it->second.access.erase(location.id);
      }
    }
    fakecuda::CountPeerAccess(driver, it->second, 1);
  }
  return fakecuda::CUDA_SUCCESS;
}
