// The worker's side of the compile service: the program telegrad-compile-worker.
#pragma once

#include "engine/compile/compiler.h"

namespace telegrad {

// Answers the requests that come over `socket` until its other end closes. The exit code.
int ServeCompiles(int socket, const CompilerOptions& options);

}  // namespace telegrad
