// Starting threads where the system may refuse to.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace telegrad {

// RESOURCE_EXHAUSTED where the system starts no more threads, which the standard library reports by
// exception.
absl::StatusOr<std::thread> StartThread(std::function<void()> run);

}  // namespace telegrad
