// What mbarriers and the copies that complete there share.
#pragma once

#include <cstdint>

#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {

// The offset of the mbarrier at `address`, in shared memory; false after a fault. Anything but a
// write of it needs one that was initialized.
bool FindBarrier(Warp& w, const Instruction& i, int lane, uint64_t address, AccessKind kind,
                 uint64_t* offset);

inline constexpr uint64_t kSwizzled = 16;  // bytes that stay together

// Where the byte at `address` of shared memory is swizzled to, and back. PTX ISA, "Swizzling
// Modes": within spans of 32, 64 or 128 bytes, the number of a chunk of 16 is xored with that of
// its line of 128 bytes, whose lowest bit is bit 7 of the address.
uint64_t Swizzled(uint64_t address, uint32_t span);

// Puts the bytes of the copies in flight where they go.
void CompleteCopies(Workgroup& group, PhaseBarrier* barrier);

}  // namespace fakecuda
