#include "server/pool/task_pool.h"

#include <utility>

namespace telegrad {

TaskPool::TaskPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

void TaskPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::deque<std::function<void()>> dropped;
  std::lock_guard lock(mutex_);
  joined_ = true;
  dropped.swap(tasks_);  // which go without the lock
}

void TaskPool::Post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (joined_) return;
  tasks_.push_back(std::move(task));
  // With the mutex held: what the task does may be to let this pool end.
  wake_.notify_one();
}

void TaskPool::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it captured goes before the lock is taken
    lock.lock();
  }
}

}  // namespace telegrad
