// Threads that a busy system may refuse.
#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/status.h"

namespace telegrad {

// RESOURCE_EXHAUSTED where there can be no more, which the library reports by exception.
inline absl::StatusOr<std::thread> StartThread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return ResourceExhausted("no thread can be had: ", error.what());
  }
}

}  // namespace telegrad
