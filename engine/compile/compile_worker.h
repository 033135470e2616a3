// The worker's side of the compile service: the program telegrad-compile-worker.
#pragma once

namespace telegrad {

// Answers the requests that come over `socket` until its other end closes. The exit code.
int ServeCompiles(int socket);

}  // namespace telegrad
