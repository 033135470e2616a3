// A list that is never destroyed.
#include "devices/api/keep_for_driver.h"

#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace telegrad {

void KeepForDriver(std::shared_ptr<const void> kept) {
  static Mutex mutex;
  static auto& all TG_GUARDED_BY(mutex) = *new std::vector<std::shared_ptr<const void>>;
  const MutexLock lock(mutex);
  all.push_back(std::move(kept));
}

}  // namespace telegrad
