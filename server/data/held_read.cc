// Calls the function that waits for the end of the read when it is destroyed.
#include "server/data/held_read.h"

namespace telegrad {

HeldRead::~HeldRead() {
  std::function<void()> released;
  {
    const MutexLock lock(mutex_);
    released.swap(released_);
  }
  memory_.reset();  // who waits may have no room without it
  if (released) released();
}

void HeldRead::OnReleased(std::function<void()> callback) {
  const MutexLock lock(mutex_);
  released_.swap(callback);  // the one before goes without the lock
}

}  // namespace telegrad
