// The judge of programs: interprets the linear order exactly as engine/ir/program.h says, element
// by element, for any target's program.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/ir/program.h"

namespace telegrad::reference {

// Runs the iterations [begin, end) of the thread range (of a program without one: [0, 1)) on
// buffers[slot]. INVALID_ARGUMENT: the program is not well formed (Verify), a buffer is missing or
// too short, or the iterations are outside of the program's. INTERNAL: the program itself is wrong:
// it reads or writes outside of a buffer where its gate holds, or reads an element of its own
// memory that it has not written; "node 17 (load): ..." names the position in the order. The
// buffers then hold what was written before.
absl::Status Run(const Program& program, std::span<const std::span<uint8_t>> buffers, int64_t begin,
                 int64_t end);

}  // namespace telegrad::reference
