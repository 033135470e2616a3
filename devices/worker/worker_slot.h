// The memory of one tenant, or of all, on a device, and the worker process that computes on it. The
// memory belongs to the daemon: when a worker ends, what it was running fails, and the next one
// finds all other bytes as they were.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "devices/cpu/arena.h"
#include "devices/worker/device_worker.h"
#include "devices/worker/short_lives.h"
#include "devices/worker/worker_device.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Code that any worker of its device may load. Immutable.
class WorkerProgram final : public LoadedProgram {
 public:
  WorkerProgram(const void* device, uint64_t id, ProgramImage image)
      : LoadedProgram(image.signature), device_(device), id_(id), image_(std::move(image)) {}
  const void* device() const { return device_; }  // whose numbers its id is of
  uint64_t id() const { return id_; }
  const ProgramImage& image() const { return image_; }

 private:
  const void* const device_;
  const uint64_t id_;
  const ProgramImage image_;
};

// Thread-safe.
class WorkerSlot {
 public:
  // `wake` rouses the supervisor.
  WorkerSlot(DeviceWorker::Options options, std::shared_ptr<Arena> arena,
             std::function<void()> wake);

  Arena& arena() const { return *arena_; }
  const std::shared_ptr<Arena>& shared_arena() const { return arena_; }

  // The worker at hand; UNAVAILABLE says why there is none. Where none can be started, it says that
  // alone: the program's path and what the system says of it are for the operator, see StartError.
  absl::StatusOr<std::shared_ptr<DeviceWorker>> Ready() const;
  // Waits until there is one, for a while; not for a pause between two starts.
  absl::StatusOr<std::shared_ptr<DeviceWorker>> AwaitReady();
  // Why the last start failed, in full; OK where none has.
  absl::Status StartError() const;
  // OK while there is one, or none was ever wanted.
  absl::Status Health() const;
  // Which worker is the one at hand, or was the last, from 1.
  uint64_t generation() const;
  // Has one started at once where there is none, and waits until it has been, or could not be: see
  // Device::Recover. The pause after workers that have ended at once is kept.
  absl::Status Recover();

  // Has the worker load the program, if it has not yet.
  absl::Status LoadInto(DeviceWorker& worker, const std::shared_ptr<const WorkerProgram>& program);

  // Of the supervisor's thread. Looks whether the worker has ended, and starts one where one is
  // wanted; what happened goes to `on_event`.
  void Look(const std::function<void(const WorkerEvent&)>& on_event);
  int socket() const;            // of the worker; -1: there is none
  int64_t next_look_ns() const;  // SteadyNs; INT64_MAX: when something happens

 private:
  void Bury(const absl::Status& how, bool at_once);
  // The next start, by so much from now on.
  void PutOff(int64_t ns) TG_REQUIRES(mutex_);
  absl::StatusOr<std::shared_ptr<DeviceWorker>> StartOne();
  // Whether one is there that is not known to have ended.
  bool HasOne() const TG_REQUIRES(mutex_) {
    return worker_ != nullptr && worker_->KnownOver().ok();
  }

  const DeviceWorker::Options options_;
  const std::shared_ptr<Arena> arena_;
  const std::function<void()> wake_;

  Mutex loading_;  // held while programs are loaded; before mutex_
  // That the worker has.
  std::map<uint64_t, std::weak_ptr<const WorkerProgram>> programs_ TG_GUARDED_BY(loading_);
  size_t sweep_at_ TG_GUARDED_BY(loading_) = 64;

  mutable Mutex mutex_;
  ConditionVariable changed_;
  bool wanted_ TG_GUARDED_BY(mutex_) = false;
  uint64_t started_ TG_GUARDED_BY(mutex_) = 0;  // so far
  uint64_t begun_ TG_GUARDED_BY(mutex_) = 0;    // starts
  uint64_t failed_ TG_GUARDED_BY(mutex_) = 0;   // the last of them that has failed
  uint64_t asked_ TG_GUARDED_BY(mutex_) = 0;    // one behind this one is wanted at once
  std::shared_ptr<DeviceWorker> worker_ TG_GUARDED_BY(mutex_);
  // There is none, once one has ended or could not be started.
  absl::Status why_ TG_GUARDED_BY(mutex_);
  absl::Status start_error_ TG_GUARDED_BY(mutex_);
  int64_t next_try_ns_ TG_GUARDED_BY(mutex_) = 0;
  ShortLives lives_ TG_GUARDED_BY(mutex_);
  int64_t pause_ns_ TG_GUARDED_BY(mutex_) = 0;    // after the last start that failed
  int64_t put_off_ns_ TG_GUARDED_BY(mutex_) = 0;  // in all, since there was one
};

}  // namespace telegrad
