// A queue that a thread of this process serves: a bounded ring of submissions, run one after the
// other by what the driver gives it. Work that is shorter than waking the thread, or for which its
// submitter waits, is run by whoever submits it, if nothing is before it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/api/run_control.h"
#include "engine/base/mutex.h"

namespace telegrad {

// What a driver does with a submission.
class QueueRunner {
 public:
  virtual ~QueueRunner() = default;

  // On the submitting thread, any number at a time: whether this queue can run the commands, which
  // are of kinds that it takes, on the bindings. Must not keep either.
  virtual absl::Status Check(const CommandBuffer* commands,
                             std::span<const BufferView> bindings) const = 0;

  // Why nothing runs any more: work that waits for a point ends with it. Whoever makes it so calls
  // the queue's Waker.
  virtual absl::Status Health() const { return absl::OkStatus(); }

  // Whether commands that passed Check are so short, with these scalars, that the submitter may run
  // them itself.
  virtual bool IsQuick(const CommandBuffer&, std::span<const uint64_t>) const { return false; }

  // On one thread at a time, the queue's or a submitter's, if IsQuick or it waits: runs what passed
  // Check. The events are one for each command that ran or failed, without the queue's name.
  virtual absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                           const RunControl& control) = 0;
};

struct HostQueueOptions {
  std::string name;  // see Queue
  QueueCapability takes = kComputesAndCopies;
  int capacity = 16'384;  // submissions
  // A submission whose foreign wait is not reached by then fails with DEADLINE_EXCEEDED, so that a
  // lost point does not stop the queue for good.
  absl::Duration wait_limit = absl::Minutes(5);
  // Whether the thread spins for a moment before it sleeps. Waking it costs the submitter less
  // then, and everybody else a core.
  bool spins = false;
};

class HostQueue final : public Queue {
 public:
  HostQueue(HostQueueOptions options, std::unique_ptr<QueueRunner> runner);
  // Ends everything that was submitted: what can run runs, what still waits for a point of another
  // timeline fails with CANCELLED.
  ~HostQueue() override;

  TimelinePoint last() const override;

  // Has the queue look at its runner's health; may be called when the queue has gone.
  std::function<void()> Waker() const;

 private:
  struct Submission {
    QueueWork work;
    std::vector<TimelinePoint> waits;
  };

  // Wakes the queue's thread. Callbacks on foreign timelines hold it, which may outlive the queue.
  struct Bell {
    Mutex mutex;
    ConditionVariable rung;
    std::atomic<bool> stop{false};

    void Ring();
  };

  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override;
  void Serve();
  bool WaitForWork();
  void Complete(uint64_t value, Submission submission);
  absl::Status RunOne(const Submission& submission);
  absl::Status Await(const TimelinePoint& point);

  const HostQueueOptions options_;
  const std::unique_ptr<QueueRunner> runner_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();

  mutable Mutex mutex_;
  // Submission n, from 1, is at n % size.
  std::vector<Submission> ring_ TG_GUARDED_BY(mutex_);
  // Those whose place in the ring is free again.
  uint64_t finished_ TG_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> submitted_{0};  // like the next two, written under the lock
  std::atomic<uint64_t> ended_{0};      // those whose point is signalled
  std::atomic<bool> busy_{false};       // somebody runs the submission after those, and looks
                                        // whether there are more when it has ended

  std::thread thread_;
};

}  // namespace telegrad
