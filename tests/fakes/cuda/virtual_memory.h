// Virtual memory management: addresses are reserved, physical memory is made, and the one is
// mapped to the other for the devices that get access.
#pragma once

#include <cstdint>
#include <set>

#include "tests/fakes/cuda/state.h"

namespace fakecuda {

// All of these hold the driver's mutex.

// Whether memory is mapped at all the bytes, with access for one of the devices; `of_its_own`:
// memory of that device.
bool IsMapped(const Driver& driver, DevicePointer address, uint64_t bytes,
              const std::set<int>& devices, bool of_its_own = false);
// What is mapped with access for one of the devices, in one region where addresses go on.
void AddMapped(const Driver& driver, const std::set<int>& devices, MemoryView* view);
// Every mapping, memory and reservation there is.
void DropVirtualMemory(Driver& driver);

}  // namespace fakecuda
