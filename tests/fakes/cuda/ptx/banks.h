// How an access of a warp suits the memories. Shared memory has 32 banks of 4 bytes, consecutive
// words are in consecutive banks, and lanes that meet in a bank at different words take turns (CUDA
// C++ Programming Guide, "Shared Memory" of compute capability 5.x, which later ones refer to). An
// access of 8 bytes a lane is made by half a warp at a time, one of 16 by a quarter; so is each
// matrix of ldmatrix, which is eight rows of 16 bytes. Conflicts are the cycles beyond these.
#pragma once

#include <cstdint>

namespace fakecuda {

// The cycles that conflicts add when each of `lanes` accesses `bytes` bytes, 1 to 16, of shared
// memory from addresses[lane] + offset on.
uint64_t BankConflicts(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes);

// Pieces of 32 bytes of global memory that they touch, in which caches load and store it (CUDA C++
// Programming Guide, "Device Memory Accesses").
uint64_t Sectors(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes);

}  // namespace fakecuda
