// Drops the rights that a process which only computes does not need.
#pragma once

#include "absl/status/status.h"

namespace telegrad {

// From here on no thread of this process opens a file or a socket, starts a process or a thread,
// looks into other processes or signals them: such calls fail with EPERM (seccomp, see seccomp(2)).
// What it has open stays open, and no other process of its user looks into this one.
// UNIMPLEMENTED where the kernel has no such filters.
absl::Status LockDown();

// For a process that hosts a driver's library, which needs files, devices and threads: from here on
// no thread of it opens a socket that is not of this machine (AF_UNIX) or connects one, looks into
// another process (also by /proc, where the kernel has Landlock), signals one, or does what only
// administrators do; such calls fail with EPERM or EACCES. Nor is it looked into by others of its
// user. Called before threads are started. UNIMPLEMENTED as above.
absl::Status ConfineDriver();

}  // namespace telegrad
