// Starting threads where the system may refuse to.
#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/status.h"

namespace telegrad {

// RESOURCE_EXHAUSTED where the system starts no more threads, which the standard library reports by
// exception.
inline absl::StatusOr<std::thread> StartThread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return ResourceExhausted("the system starts no more threads: ", error.what());
  }
}

}  // namespace telegrad
