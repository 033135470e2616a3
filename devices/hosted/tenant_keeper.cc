// What is to be destroyed is handed to the thread, and destroyed there without the lock: the end of
// a process waits for its threads, one of which may have dropped the last reference.
#include "devices/hosted/tenant_keeper.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "devices/api/trace.h"
#include "engine/base/mutex.h"
#include "engine/base/thread.h"

namespace telegrad {

struct TenantKeeper::State {
  Mutex mutex;
  ConditionVariable rung;
  bool woken TG_GUARDED_BY(mutex) = false, stop TG_GUARDED_BY(mutex) = false;
  std::vector<std::weak_ptr<TenantSlot>> slots TG_GUARDED_BY(mutex);
  // To be destroyed.
  std::vector<std::unique_ptr<TenantSlot>> unused TG_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<TenantRemains>> remains TG_GUARDED_BY(mutex);
  bool destroying TG_GUARDED_BY(mutex) = false;

  void Wake() {
    const MutexLock lock(mutex);
    woken = true;
    rung.notify_all();
  }
  std::vector<std::shared_ptr<TenantSlot>> Live() {
    std::vector<std::shared_ptr<TenantSlot>> out;
    const MutexLock lock(mutex);
    for (const auto& known : slots) {
      if (auto slot = known.lock()) out.push_back(std::move(slot));
    }
    return out;
  }
  // False: it is over.
  bool Await(int64_t next_ns) {
    std::vector<std::unique_ptr<TenantSlot>> gone;
    std::vector<std::unique_ptr<TenantRemains>> remains_gone;
    ReleasableLock lock(mutex);
    while (!woken && !stop && SteadyNs() < next_ns) {
      if (next_ns == INT64_MAX) {
        rung.wait(lock);
      } else {
        rung.wait_for(lock, std::chrono::nanoseconds(next_ns - SteadyNs()));
      }
    }
    woken = false;
    gone.swap(unused);
    remains_gone.swap(remains);
    destroying = true;
    lock.unlock();
    remains_gone.clear();
    gone.clear();
    lock.lock();
    destroying = false;
    rung.notify_all();
    return !stop;
  }
  void Serve() {
    int64_t next = INT64_MAX;
    while (Await(next)) {
      next = INT64_MAX;
      for (const auto& slot : Live()) next = std::min(next, slot->Look([this] { Wake(); }));
    }
  }
};

TenantKeeper::TenantKeeper() : state_(std::make_shared<State>()) {}

absl::StatusOr<std::unique_ptr<TenantKeeper>> TenantKeeper::Start() {
  std::unique_ptr<TenantKeeper> out(new TenantKeeper());
  TG_ASSIGN_OR_RETURN(out->thread_, StartThread([state = out->state_] { state->Serve(); }));
  return out;
}

// Destroyed by the last slot's owner, it is so by its own thread.
TenantKeeper::~TenantKeeper() {
  {
    const MutexLock lock(state_->mutex);
    state_->stop = true;
    state_->rung.notify_all();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

std::shared_ptr<TenantSlot> TenantKeeper::Keep(std::unique_ptr<TenantSlot> slot) {
  std::shared_ptr<TenantSlot> out(slot.release(), [state = state_](TenantSlot* unused) {
    {
      const MutexLock lock(state->mutex);
      state->unused.emplace_back(unused);
    }
    state->Wake();
  });
  const MutexLock lock(state_->mutex);
  std::erase_if(state_->slots, [](const auto& known) { return known.expired(); });
  state_->slots.push_back(out);
  return out;
}

std::vector<std::shared_ptr<TenantSlot>> TenantKeeper::slots() const { return state_->Live(); }

void TenantKeeper::Discard(std::unique_ptr<TenantRemains> remains) {
  const MutexLock lock(state_->mutex);
  state_->remains.push_back(std::move(remains));
  state_->woken = true;
  state_->rung.notify_all();
}

void TenantKeeper::AwaitUnused() {
  ReleasableLock lock(state_->mutex);
  while (!state_->unused.empty() || !state_->remains.empty() || state_->destroying)
    state_->rung.wait(lock);
}

std::function<void()> TenantKeeper::Waker() const {
  return [state = state_] { state->Wake(); };
}

}  // namespace telegrad
