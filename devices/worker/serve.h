// The worker's side: the program telegrad-device-worker.
#pragma once

namespace telegrad {

// Runs what comes over the ring of the daemon at the other end of `socket`, until that closes. The
// exit code.
int ServeDevice(int socket);

}  // namespace telegrad
