// Kernels that compute the same from different parts of a temporary become one kernel, bound to
// different places.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// Where a kernel only reads an argument that is a temporary, and reads a part of it, the argument
// becomes that part: BufferRef::offset says where it begins, at a multiple of kTemporaryAlignment,
// and the kernel's indices count from there. The steps of a recurrence, each of which reads its row
// of what was computed for all of them, so are the same kernel, which is compiled once.
absl::Status ViewArguments(Schedule* schedule, Budget* budget);

}  // namespace telegrad
