#include "engine/base/thread.h"

#include <sched.h>

#include <algorithm>
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

// A set of fixed size has room for 1,024 processors, of which a machine may have more.
int AvailableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
}

}  // namespace telegrad
