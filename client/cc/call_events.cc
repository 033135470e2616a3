#include "client/cc/call_events.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/thread.h"
#include "proto/call_event.h"

namespace telegrad {
namespace {

constexpr int kMostThreads = 16;

// Of the process.
struct Queues {
  Mutex mutex;
  ConditionVariable unused;
  std::weak_ptr<CallEvents> own TG_GUARDED_BY(mutex);
  grpc::CompletionQueue* lent TG_GUARDED_BY(mutex) = nullptr;
  std::list<std::function<void()>> users TG_GUARDED_BY(mutex);  // of the lent one: how they end
};

// Never destroyed: a call may end as late as the process.
Queues& OfProcess() {
  static auto* const queues = new Queues;
  return *queues;
}

}  // namespace

CallEvents::CallEvents() {
  const int threads = std::clamp(AvailableProcessors() / 2, 1, kMostThreads);
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([queue = queue_] {
      pthread_setname_np(pthread_self(), "client calls");
      void* tag = nullptr;
      bool ok = false;
      while (queue->Next(&tag, &ok)) CallEvent::Of(tag)->Happened(ok);
    });
  }
}

// Perhaps on one of its threads, with the last call.
CallEvents::~CallEvents() {
  queue_->Shutdown();
  for (std::thread& thread : threads_) {
    thread.get_id() == std::this_thread::get_id() ? thread.detach() : thread.join();
  }
}

std::shared_ptr<CallEvents> CallEvents::Own() {
  Queues& all = OfProcess();
  const MutexLock lock(all.mutex);
  std::shared_ptr<CallEvents> own = all.own.lock();
  if (own == nullptr) {
    own.reset(new CallEvents);
    all.own = own;
  }
  return own;
}

CallEvents::Use CallEvents::Use::OfOwn() {
  Use use;
  use.own_ = Own();
  use.queue_ = use.own_->queue_.get();
  return use;
}

CallEvents::Use CallEvents::Use::OfAny(std::function<void()> cancel) {
  Queues& all = OfProcess();
  {
    const MutexLock lock(all.mutex);
    if (all.lent != nullptr) {
      Use use;
      use.queue_ = all.lent;
      use.lent_ = all.users.insert(all.users.end(), std::move(cancel));
      return use;
    }
  }
  return OfOwn();
}

CallEvents::Use::Use(Use&& other) noexcept
    : queue_(std::exchange(other.queue_, nullptr)),
      own_(std::move(other.own_)),
      lent_(other.lent_) {}

CallEvents::Use::~Use() {
  if (queue_ == nullptr || own_ != nullptr) return;
  Queues& all = OfProcess();
  const MutexLock lock(all.mutex);
  all.users.erase(lent_);
  if (all.users.empty()) all.unused.notify_all();
}

void CallEvents::Lend(grpc::CompletionQueue* queue) {
  Queues& all = OfProcess();
  const MutexLock lock(all.mutex);
  all.lent = queue;
}

void CallEvents::TakeBack() {
  Queues& all = OfProcess();
  ReleasableLock lock(all.mutex);
  all.lent = nullptr;
  for (const auto& cancel : all.users) cancel();
  while (!all.users.empty()) all.unused.wait(lock);
}

}  // namespace telegrad
