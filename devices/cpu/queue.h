// The queue: a bounded ring of submissions and the thread that runs them in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/cpu/command_buffer.h"
#include "devices/cpu/worker_pool.h"

namespace telegrad {

class CpuQueue : public Queue {
 public:
  CpuQueue(int threads, int capacity, absl::Duration wait_limit);
  // Ends everything that was submitted, see OpenCpu.
  ~CpuQueue() override;

  // Also INVALID_ARGUMENT for commands of another device, bindings that do not fit, or a wait for a
  // point of this queue that is not submitted yet.
  absl::StatusOr<TimelinePoint> Submit(std::shared_ptr<const CommandBuffer> commands,
                                       std::vector<BufferView> bindings,
                                       std::span<const TimelinePoint> waits) override;
  TimelinePoint last() const override;

 private:
  struct Submission {
    std::shared_ptr<const CpuCommandBuffer> commands;
    std::vector<BufferView> bindings;
    std::vector<TimelinePoint> waits;
  };

  // Wakes the queue's thread. Callbacks on foreign timelines hold it, which may outlive the queue.
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    std::atomic<bool> stop{false};

    void Ring();
  };

  void Serve();
  bool WaitForWork(uint64_t done);
  absl::Status AwaitAll(std::span<const TimelinePoint> waits);
  absl::Status Await(const TimelinePoint& point);

  const absl::Duration wait_limit_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  WorkerPool pool_;

  mutable std::mutex mutex_;            // for what follows
  std::vector<Submission> ring_;        // submission n, from 1, is at n % size
  std::atomic<uint64_t> submitted_{0};  // written under the lock
  uint64_t finished_ = 0;               // those whose place in the ring is free again

  std::thread thread_;
};

}  // namespace telegrad
