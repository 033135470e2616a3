// Conflicts in the banks of local memory (LDS). It has 32 banks of 4 bytes, consecutive words are
// in consecutive banks, and lanes that meet in a bank at different words take turns ("AMD Instinct
// MI300" and "RDNA3" Instruction Set Architecture, "Local Data Share": a processor of RDNA3 has two
// such sets of 32, a wave uses one of them). An access needs as many cycles as its bytes fill the
// banks; conflicts are those beyond.
#pragma once

#include <cstdint>

namespace fakeamd {

// Which lanes use the banks in the same cycle: as many neighbours as fill them. On gfx9 a load of
// 16 bytes takes eight lanes that are no neighbours, such as 0 to 3 with 20 to 23 (documentation of
// ROCm's Composable Kernel, "Understanding AMD GPU LDS and Bank Conflicts", for this and for stores
// of 16 bytes; the repository tingqli/pyhip, "Measuring bank-conflict behaviour", measured on an
// MI300 this and loads of 4 and of 8 bytes). Of other widths, and of other processors' loads, no
// order is documented.
enum class LaneOrder : uint8_t { kNeighbours, kLoadsOf16OnGfx9 };

// The cycles that conflicts add when each lane of `active` accesses `bytes` bytes, 1 to 16, from
// addresses[lane] + offset on.
uint64_t BankConflicts(const uint32_t* addresses, uint32_t offset, uint64_t active, uint32_t bytes,
                       LaneOrder order);

}  // namespace fakeamd
