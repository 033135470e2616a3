// Copies to and from mapped memory that another process may change.
#pragma once

#include <cstddef>

namespace telegrad {

// StreamCopy of `bytes` between a shared mapping, at `mapped`, and private memory of this process.
// False where the system could not provide a page of the mapping (the file was truncated, the
// machine is out of memory, its storage failed): then the copy is invalid, and that page and all
// after it have become private zero pages. The caller unmaps them.
//
// Without this function such an access would end the process with SIGBUS. The first call installs a
// handler, which passes on every signal that was not caused by such a copy.
bool GuardedCopy(void* to, const void* from, size_t bytes, const void* mapped);

}  // namespace telegrad
