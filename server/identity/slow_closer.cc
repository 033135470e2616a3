// A thread takes descriptors from a list and closes them. It shares only the list, so it may
// hang in a close longer than the object exists.
#include "server/identity/slow_closer.h"

#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "engine/base/mutex.h"

namespace telegrad {

// Shared with the thread, which may outlive the closer.
struct SlowCloser::State {
  Mutex mutex;
  ConditionVariable more;
  std::deque<std::pair<UniqueFd, uid_t>> waiting TG_GUARDED_BY(mutex);
  std::map<uid_t, size_t> open TG_GUARDED_BY(mutex);
  bool stop TG_GUARDED_BY(mutex) = false;
};

SlowCloser::SlowCloser() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { Serve(state); }).detach();
}

SlowCloser::~SlowCloser() {
  const MutexLock lock(state_->mutex);
  state_->stop = true;
  state_->more.notify_all();
}

void SlowCloser::Close(UniqueFd fd, uid_t of) {
  if (!fd.valid()) return;
  const MutexLock lock(state_->mutex);
  ++state_->open[of];
  state_->waiting.emplace_back(std::move(fd), of);
  state_->more.notify_all();
}

size_t SlowCloser::open(uid_t of) const {
  const MutexLock lock(state_->mutex);
  const auto it = state_->open.find(of);
  return it == state_->open.end() ? 0 : it->second;
}

void SlowCloser::Serve(const std::shared_ptr<State>& state) {
  ReleasableLock lock(state->mutex);
  while (true) {
    while (!state->stop && state->waiting.empty()) state->more.wait(lock);
    if (state->waiting.empty()) return;
    auto [fd, of] = std::move(state->waiting.front());
    state->waiting.pop_front();
    lock.unlock();
    {
      const UniqueFd closed = std::move(fd);
    }
    lock.lock();
    if (--state->open[of] == 0) state->open.erase(of);
  }
}

}  // namespace telegrad
