// Parts of temporaries that no kernel reads are not computed.
#pragma once

#include "engine/schedule/schedule.h"

namespace telegrad {

// A temporary of a general form has room for the bound of a size, and what reads it skips what is
// beyond the size of the run: by comparisons of a position along an axis with a number that the run
// gives, in a slot that no kernel writes or in a temporary that one kernel writes. Where all that
// reads it does, the kernels that write it, if they come after the number is known, get the same
// comparison as the gate of their stores, and so on back to the first kernel. Lowering ends their
// loops by it (lowering/runtime_ends.h).
//
// What is left out keeps what the memory held before; no result depends on it. Whether temporaries
// are written before they are read (written_first.h) is to be asked about the schedule before this.
void LeaveOutUnread(Schedule* schedule);

}  // namespace telegrad
