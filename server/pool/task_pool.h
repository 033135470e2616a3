// A few threads for work that would hold up a gRPC or device thread: verifying graphs, compiling,
// clearing large allocations. Tenants take turns, see FairTasks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/base/fair_tasks.h"
#include "engine/base/mutex.h"
#include "engine/base/share.h"

namespace telegrad {

class TaskPool {
 public:
  struct Options {
    int threads = 1;
    // Further ones, for tenants of which no task is running: a task cannot be interrupted, and
    // whoever comes while long ones have all threads need not wait for their end.
    int spare = 0;
    int nice = 0;  // the threads' priority, see nice(2)
  };

  explicit TaskPool(int threads) : TaskPool(Options{.threads = threads}) {}
  explicit TaskPool(const Options& options);
  ~TaskPool() { Stop(); }

  // Runs what is still queued, then joins. What is posted later is dropped.
  void Stop();

  // Thread-safe; tasks of one tenant start in order.
  void Post(std::function<void()> task, std::shared_ptr<const Share> share = nullptr);

 private:
  using Task = std::function<void()>;
  std::optional<FairTasks<Task>::Taken> NextLocked() TG_REQUIRES(mutex_);
  void Loop();

  const Options options_;
  Mutex mutex_;
  ConditionVariable wake_;
  FairTasks<Task> tasks_ TG_GUARDED_BY(mutex_);
  int running_ TG_GUARDED_BY(mutex_) = 0;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  bool joined_ TG_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace telegrad
