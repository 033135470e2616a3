// A few threads for work that would hold up a gRPC or device thread: verifying graphs, compiling,
// clearing large allocations.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace telegrad {

class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool() { Stop(); }

  // Runs what is still queued, then joins. What is posted later is dropped.
  void Stop();

  // Thread-safe; tasks start in order.
  void Post(std::function<void()> task);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false, joined_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace telegrad
