// Device memory. Its addresses are from a range that is reserved in the process and cannot be
// accessed by the host, and are never used twice; the bytes are elsewhere.
#pragma once

#include <cstdint>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

inline constexpr uint64_t kAllocationAlign = 256;

// Both hold the driver's mutex. 0 if the device is full.
DevicePointer AllocateDevice(Driver& driver, Handle context, uint64_t bytes, bool internal);
// Bytes of another process, which the device has there. 0 if there are no addresses left.
DevicePointer MapDevice(Driver& driver, Handle context, uint64_t bytes,
                        std::shared_ptr<uint8_t> host);
// As many addresses that were never used, at a multiple of `alignment`; 0 if there are none left.
DevicePointer TakeAddresses(uint64_t bytes, uint64_t alignment);
// What the knob module_bytes says that a module takes. False if the device is full; 0: it takes
// none.
bool TakeCode(Driver& driver, Handle context, DevicePointer* code);
// Of an existing allocation.
void FreeDevice(Driver& driver, DevicePointer base);

// Whether the address lies in the range that device addresses come from.
bool IsDeviceAddress(uint64_t address);

}  // namespace fakecuda
