// Copies to and from mapped memory that somebody else has a hand in.
#pragma once

#include <cstddef>

namespace telegrad {

// memcpy of `bytes` between a shared mapping and memory of this process's own, of which `mapped`
// says where in the mapping. False where the system could not provide a page of it (it was cut off,
// the machine is out of memory, its storage failed): then what was copied is of no use, and that
// page and those behind it are private zeros from now on. The caller unmaps them.
//
// Without it such an access ends the process with SIGBUS. The first call installs a handler, which
// passes on every signal that no copy of this kind caused.
bool GuardedCopy(void* to, const void* from, size_t bytes, const void* mapped);

}  // namespace telegrad
