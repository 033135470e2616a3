#include "server/identity/slow_closer.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace telegrad {

// Shared with the thread, which may outlive the closer.
struct SlowCloser::State {
  mutable std::mutex mutex;  // of all below
  std::condition_variable more;
  std::deque<std::pair<UniqueFd, uid_t>> waiting;
  std::map<uid_t, size_t> open;
  bool stop = false;
};

SlowCloser::SlowCloser() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { Serve(state); }).detach();
}

SlowCloser::~SlowCloser() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->more.notify_all();
}

void SlowCloser::Close(UniqueFd fd, uid_t of) {
  if (!fd.valid()) return;
  const std::lock_guard lock(state_->mutex);
  ++state_->open[of];
  state_->waiting.emplace_back(std::move(fd), of);
  state_->more.notify_all();
}

size_t SlowCloser::open(uid_t of) const {
  const std::lock_guard lock(state_->mutex);
  const auto it = state_->open.find(of);
  return it == state_->open.end() ? 0 : it->second;
}

void SlowCloser::Serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->more.wait(lock, [&] { return state->stop || !state->waiting.empty(); });
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
