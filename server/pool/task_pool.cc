// Threads take the next task of the tenant whose turn it is; a spare thread takes only tasks of
// tenants that have none running.
#include "server/pool/task_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <deque>
#include <utility>

#include "engine/base/clock.h"

namespace telegrad {

TaskPool::TaskPool(const Options& options) : options_(options) {
  for (int i = 0; i < options_.threads + options_.spare; ++i) {
    threads_.emplace_back([this] {
      if (options_.nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), options_.nice);
      Loop();
    });
  }
}

void TaskPool::Stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::deque<Task> dropped;  // which go without the lock
  const MutexLock lock(mutex_);
  joined_ = true;
  dropped = tasks_.TakeAll();
}

void TaskPool::Post(std::function<void()> task, std::shared_ptr<const Share> share) {
  const MutexLock lock(mutex_);
  if (joined_) return;
  tasks_.Push(std::move(share), std::move(task));
  // With the mutex held: what the task does may be to let this pool end.
  wake_.notify_one();
}

std::optional<FairTasks<TaskPool::Task>::Taken> TaskPool::NextLocked() {
  if (tasks_.size() == 0) return std::nullopt;
  return tasks_.Pop(/*idle_only=*/running_ >= options_.threads);
}

void TaskPool::Loop() {
  ReleasableLock lock(mutex_);
  while (true) {
    std::optional<FairTasks<Task>::Taken> next = NextLocked();
    if (!next && stop_ && tasks_.size() == 0) return;
    if (!next) {
      wake_.wait(lock);
      continue;
    }
    ++running_;
    // A task of a tenant whose turn has just come up may suit a thread that found nothing before.
    if (tasks_.size() > 0) wake_.notify_one();
    lock.unlock();
    const int64_t begin = Clock::Steady()->Ns();
    next->task();
    next->task = nullptr;  // what it captured goes before the lock is taken
    const auto took = static_cast<double>(Clock::Steady()->Ns() - begin);
    lock.lock();
    --running_;
    tasks_.Ended(next->flow, next->predicted_ns, took);
    if (stop_) wake_.notify_all();
  }
}

}  // namespace telegrad
