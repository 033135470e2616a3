// The lanes of one session in the fair queues of all devices: where its runs and its copies are
// handed in.
#pragma once

#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/share.h"
#include "engine/execution/run_queues.h"
#include "server/pool/device_pool.h"
#include "server/pool/fair_queue.h"

namespace telegrad {

// How urgent a run is to its tenant; of no concern to others.
enum class Priority : int { kLow = -1, kNormal = 0, kHigh = 1 };

// Thread-safe.
class SessionQueues {
 public:
  SessionQueues(const DevicePool* devices, std::shared_ptr<const Share> share)
      : devices_(*devices), share_(std::move(share)) {}

  const DevicePool& devices() const { return devices_; }
  const std::shared_ptr<const Share>& share() const { return share_; }

  // A device that is not in the pool, such as one that is a tenant's own, is handed the work
  // directly.
  absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work,
                                       WorkTerms terms);

 private:
  const DevicePool& devices_;
  const std::shared_ptr<const Share> share_;
  Mutex mutex_;
  absl::flat_hash_map<FairQueue*, std::shared_ptr<FairQueue::Lane>> lanes_ TG_GUARDED_BY(mutex_);
};

// For one run, or for copies on behalf of the session.
class QueuesForRun final : public RunQueues {
 public:
  explicit QueuesForRun(SessionQueues* queues, Priority priority = Priority::kNormal,
                        int64_t deadline_ns = INT64_MAX,
                        std::shared_ptr<DeviceTime> taken = nullptr)
      : queues_(*queues), terms_{static_cast<int>(priority), deadline_ns, std::move(taken)} {}

  absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work) override {
    return queues_.Submit(device, kind, std::move(work), terms_);
  }
  int run_class() const override { return terms_.priority + 1; }

 private:
  SessionQueues& queues_;
  const WorkTerms terms_;
};

}  // namespace telegrad
