#include "engine/base/thread.h"

#include <system_error>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::thread> StartThread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return ResourceExhausted("the system starts no more threads: ", error.what());
  }
}

}  // namespace telegrad
