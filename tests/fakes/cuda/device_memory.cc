// Device addresses are taken from a reserved range with gaps between allocations; the bytes are
// on the host's heap and begin as garbage.
#include "tests/fakes/cuda/device_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace fakecuda {
namespace {

constexpr uint64_t kRangeBytes = uint64_t{1} << 43;
constexpr uint64_t kGap = 4096;  // between allocations, so that running over an end is a fault

struct Range {
  uint64_t begin = 0;
  uint64_t next = 0;
};

Range& Reserved() {
  static Range* const range = [] {
    void* const base =
        mmap(nullptr, kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    // Where the system does not even give addresses, these are no host addresses at all.
    const uint64_t begin =
        base == MAP_FAILED ? uint64_t{0xfa} << 48 : reinterpret_cast<uint64_t>(base);
    return new Range{begin, begin + kGap};
  }();
  return *range;
}

uint64_t RoundUp(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

}  // namespace

DevicePointer TakeAddresses(uint64_t bytes, uint64_t alignment) {
  Range& range = Reserved();
  const uint64_t base = RoundUp(range.next, alignment);
  if (bytes > kRangeBytes || base + bytes + kGap > range.begin + kRangeBytes) return 0;
  range.next = base + bytes + kGap;
  return base;
}

DevicePointer MapDevice(Driver& driver, Handle context, uint64_t bytes,
                        std::shared_ptr<uint8_t> host) {
  const uint64_t base = TakeAddresses(bytes, kAllocationAlign);
  if (base == 0) return 0;
  Allocation& allocation = driver.allocations[base];
  allocation.context = context;
  allocation.region = {.base = base, .bytes = bytes, .host = host.get(), .keep = host};
  allocation.opened = 1;
  ++driver.counters.live_imports;
  return base;
}

DevicePointer AllocateDevice(Driver& driver, Handle context, uint64_t bytes, bool internal) {
  Device& device = driver.devices[static_cast<size_t>(driver.contexts.at(context).device)];
  if (bytes > kRangeBytes) return 0;
  const auto charged = static_cast<int64_t>(RoundUp(bytes, kAllocationAlign));
  if (charged > driver.MemoryOf(device) - device.used) return 0;
  auto* const host = new (std::nothrow) uint8_t[bytes];
  if (host == nullptr) return 0;
  std::memset(host, 0xcd, bytes);
  const uint64_t base = TakeAddresses(bytes, kAllocationAlign);
  if (base == 0) {
    delete[] host;
    return 0;
  }
  Allocation& allocation = driver.allocations[base];
  allocation.context = context;
  allocation.region = {.base = base,
                       .bytes = bytes,
                       .host = host,
                       .keep = std::shared_ptr<uint8_t>(host, std::default_delete<uint8_t[]>())};
  allocation.charged = charged;
  allocation.internal = internal;
  device.used += charged;
  if (!internal) {
    ++driver.counters.allocations;
    ++driver.counters.live_allocations;
    driver.counters.live_bytes += static_cast<int64_t>(bytes);
  }
  return base;
}

bool TakeCode(Driver& driver, Handle context, DevicePointer* code) {
  const int64_t bytes = driver.knobs.module_bytes;
  *code = bytes > 0 ? AllocateDevice(driver, context, static_cast<uint64_t>(bytes), true) : 0;
  return bytes <= 0 || *code != 0;
}

void FreeDevice(Driver& driver, DevicePointer base) {
  const auto it = driver.allocations.find(base);
  const Allocation& allocation = it->second;
  driver.devices[static_cast<size_t>(driver.contexts.at(allocation.context).device)].used -=
      allocation.charged;
  if (allocation.opened > 0) {
    --driver.counters.live_imports;
  } else if (!allocation.internal) {
    --driver.counters.live_allocations;
    driver.counters.live_bytes -= static_cast<int64_t>(allocation.region.bytes);
  }
  driver.allocations.erase(it);
}

bool IsDeviceAddress(uint64_t address) { return address - Reserved().begin < kRangeBytes; }

}  // namespace fakecuda
