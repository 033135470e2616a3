// What mbarriers and the copies that complete there share.
#pragma once

#include <cstdint>

#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {

// The offset of the mbarrier at `address`, in shared memory; false after a fault. Anything but a
// write of it needs one that was initialized.
bool FindBarrier(Warp& w, const Instruction& i, int lane, uint64_t address, AccessKind kind,
                 uint64_t* offset);

// Puts the bytes of the copies in flight where they go.
void CompleteCopies(Workgroup& group, PhaseBarrier* barrier);

}  // namespace fakecuda
