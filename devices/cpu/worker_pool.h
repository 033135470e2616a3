// The threads that share the iterations of a launch.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace telegrad {

// Run is called by one thread at a time, which works along.
class WorkerPool {
 public:
  // The CPU's entry point of a program, see ProgramImage.
  using Body = void (*)(void* const* buffers, int64_t begin, int64_t end);

  // `threads` in all, 1 to kMaxThreads: one less is started.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls `body` with parts that together are [begin, end), on this thread and on others, of
  // which `helpers` are woken; returns when all have ended, and what they wrote is visible.
  void Run(Body body, void* const* buffers, int64_t begin, int64_t end, int helpers);

 private:
  void Work();
  void RunParts();

  // The job, written while no worker is inside.
  Body body_ = nullptr;
  void* const* buffers_ = nullptr;
  int64_t end_ = 0;
  int64_t part_ = 1;
  std::atomic<int64_t> next_{0};

  // Bits 0-11: workers inside the job; bit 12: the job takes workers; bits 13-31: the job's number.
  std::atomic<uint32_t> state_{0};
  // Counts up when the last worker leaves a job that takes no more.
  std::atomic<uint32_t> emptied_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace telegrad
