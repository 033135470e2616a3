// Ends launches that were cancelled or that take too long. A queue checks the cancellation of a
// run before each command; this checks it while a command runs.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "devices/api/cancellation.h"
#include "devices/cpu/worker_pool.h"
#include "engine/base/mutex.h"

namespace telegrad {

class LaunchWatch {
 public:
  // A launch that runs for longer than `limit` is ended.
  LaunchWatch(WorkerPool* pool, absl::Duration limit);
  ~LaunchWatch();

  // The calling thread runs launches on the pool until End. `cancellation` may be null.
  void Begin(const Cancellation* cancellation);
  void End();
  // Why the last launch was ended: of the thread that began, after WorkerPool::Run was false.
  absl::Status why();

 private:
  void Watch();
  absl::Status LookLocked(uint64_t job, int64_t now) TG_REQUIRES(mutex_);

  WorkerPool& pool_;
  const absl::Duration limit_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool active_ TG_GUARDED_BY(mutex_) = false;
  bool asleep_ TG_GUARDED_BY(mutex_) = false;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  uint64_t begun_ TG_GUARDED_BY(mutex_) = 0;  // times that something began
  const Cancellation* cancellation_ TG_GUARDED_BY(mutex_) = nullptr;
  pthread_t caller_ TG_GUARDED_BY(mutex_) = {};
  uint64_t job_ TG_GUARDED_BY(mutex_) = 0;   // that was seen running last,
  int64_t since_ TG_GUARDED_BY(mutex_) = 0;  // and when it was seen first
  absl::Status why_ TG_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad
