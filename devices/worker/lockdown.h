// Drops the rights that a process which only computes does not need.
#pragma once

#include "absl/status/status.h"

namespace telegrad {

// From here on no thread of this process opens a file or a socket, starts a process or a thread,
// looks into other processes or signals them: such calls fail with EPERM (seccomp, see seccomp(2)).
// What it has open stays open. UNIMPLEMENTED where the kernel has no such filters.
absl::Status LockDown();

}  // namespace telegrad
