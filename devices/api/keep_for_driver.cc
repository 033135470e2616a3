// A list that is never destroyed.
#include "devices/api/keep_for_driver.h"

#include <mutex>
#include <utility>
#include <vector>

namespace telegrad {

void KeepForDriver(std::shared_ptr<const void> kept) {
  static std::mutex mutex;
  static auto* const all = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  all->push_back(std::move(kept));
}

}  // namespace telegrad
