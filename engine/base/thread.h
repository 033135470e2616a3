// Starting threads where the system may refuse to, and how many of them run at once.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace telegrad {

// RESOURCE_EXHAUSTED where the system starts no more threads, which the standard library reports by
// exception.
absl::StatusOr<std::thread> StartThread(std::function<void()> run);

// The processors that this thread may run on, at least one. The standard library tells those of the
// machine, of which a container may have been given some.
int AvailableProcessors();

}  // namespace telegrad
