// The threads that share the iterations of a launch.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace telegrad {

// Run is called by one thread at a time, which works along.
class WorkerPool {
 public:
  // The entry point of a program for x86-64, see program_signature.h.
  using Body = void (*)(const uint64_t* words, int64_t begin, int64_t end);

  // `threads` in all, 1 to kMaxThreads: one less is started.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls `body` with parts that together are [begin, end), on this thread and on others, of
  // which `helpers` are woken; returns when all have ended, and what they wrote is visible. False
  // if it was interrupted: some of it has not run, or not to its end.
  bool Run(Body body, const uint64_t* words, int64_t begin, int64_t end, int helpers);

  // The number of the job that Run is at, from 1; 0: none. Thread-safe.
  uint64_t job() const { return running_.load(std::memory_order_acquire); }
  // Ends that job, if it has not ended, wherever its threads are in it. Thread-safe; `caller`, who
  // called Run, is alive.
  void Interrupt(uint64_t job, pthread_t caller);

 private:
  // The iterations that a thread takes first, in order, from `next` on.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  // `thread`: 0 is the caller of Run.
  void Work(int thread);
  void RunJob(Body body, const uint64_t* words, int64_t begin, int64_t end, int helpers);
  void RunParts(int thread);
  void TakeParts(int thread);

  // The job, written while no worker is inside.
  Body body_ = nullptr;
  const uint64_t* words_ = nullptr;
  int64_t part_ = 1;        // at most
  int64_t last_parts_ = 1;  // into so many parts is divided what is left of a share
  int sharing_ = 1;         // threads that have shares, the first of `shares_`
  uint64_t number_ = 0;     // of the job, from 1
  std::vector<Share> shares_;

  std::atomic<uint64_t> running_{0}, interrupted_{0};  // numbers of jobs

  // Bits 0-11: workers inside the job; bit 12: the job takes workers; bits 13-31: the job's number.
  std::atomic<uint32_t> state_{0};
  // Counts up when the last worker leaves a job that takes no more.
  std::atomic<uint32_t> emptied_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace telegrad
