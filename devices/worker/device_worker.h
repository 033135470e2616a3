// One worker process, seen from the daemon: it is started with its memory and a socket only,
// given records to run, watched while it runs them, and removed when it has ended or cannot be
// used any more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/cancellation.h"
#include "devices/api/shared_memory.h"
#include "devices/worker/control.h"
#include "devices/worker/protocol.h"
#include "devices/worker/short_lives.h"
#include "engine/base/mutex.h"
#include "engine/process/child_process.h"
#include "engine/process/frame.h"
#include "engine/process/processor_use.h"

namespace telegrad {

class DeviceWorker {
 public:
  struct Options {
    std::string executable;
    std::string whose;  // "CPU:0's worker", for messages
    uint64_t generation = 1;
    int memory = -1;  // descriptor of its memory
    DeviceWorkerSetup setup;
    // How long it may answer nothing, or go on with what is to end, before it is taken for hung.
    absl::Duration hang_limit = absl::Seconds(1);
    // How long it may take for each of two steps of its start, without the time for which it waits
    // for a processor; see PatienceLeft.
    std::chrono::nanoseconds patience = std::chrono::seconds(10);
    PatienceSource patience_source = {};
    // What ends sooner after its start, and without having ended any work, has ended at once.
    absl::Duration short_life = kShortWorkerLife;
  };

  // Starts one and waits until it is ready. The process lives no longer than the calling thread.
  // UNAVAILABLE, naming the executable and what happened.
  static absl::StatusOr<std::unique_ptr<DeviceWorker>> Start(const Options& options);

  pid_t pid() const { return process_->pid(); }
  int socket() const { return process_->socket(); }

  // Thread-safe. INVALID_ARGUMENT says why it cannot load the program; UNAVAILABLE that it ended.
  absl::Status Load(uint64_t program, std::string_view name, std::string_view binary);
  void Drop(uint64_t program);

  // By one thread at a time: the record that is to be filled next, or null while the ring is full;
  // then its number.
  RingRecord* Next();
  uint64_t Post();

  // What became of a record.
  struct Outcome {
    absl::Status status;
    bool died = false;
  };
  // By the thread that posts, in the order of the numbers. Waits until the record has ended, also
  // by the end of the process: then UNAVAILABLE says how it ended and, by `name_of` its step, what
  // it was running. Waits for no longer than the hang limit after `cancellation` wants an end.
  template <typename StepName>
  Outcome Await(uint64_t number, const Cancellation* cancellation, StepName name_of) {
    Outcome out = AwaitEnd(number, cancellation);
    if (out.died) {
      const uint32_t step = control().step.load();
      const std::string name = step < kRecordSteps ? name_of(step) : "";
      if (!name.empty()) out.status = WhileRunning(name);
    }
    return out;
  }

  // Has all that was posted end early.
  void CancelAll();
  // When a step of a record that was awaited ran, as the worker says: anything.
  RingTimes TimesOf(uint64_t number, uint32_t step);

  // OK, or UNAVAILABLE that says how it ended; looks whether it has. Thread-safe.
  absl::Status Over();
  // Whether it has ended soon after its start and without having ended any work.
  bool EndedAtOnce() const { return ended_at_once_.load(); }
  // The same as Over, without looking.
  absl::Status KnownOver() const {
    const MutexLock lock(end_mutex_);
    return over_;
  }

 private:
  DeviceWorker(const Options& options, std::unique_ptr<ChildProcess> process,
               std::unique_ptr<SharedMapping> control)
      : options_(options), process_(std::move(process)), control_(std::move(control)) {}

  WorkerControl& control() { return *reinterpret_cast<WorkerControl*>(control_->base()); }
  absl::Status Greet(int control);
  absl::StatusOr<std::string> ReadPatiently(size_t max_bytes);
  Outcome AwaitEnd(uint64_t number, const Cancellation* cancellation);
  absl::Status WhileRunning(std::string_view name);
  // Kills it, because of `why`; "": it has ended by itself.
  absl::Status End(std::string_view why);

  const Options options_;
  const std::unique_ptr<ChildProcess> process_;
  const std::unique_ptr<SharedMapping> control_;
  std::chrono::steady_clock::time_point started_ = {};
  std::atomic<bool> worked_{false}, ended_at_once_{false};
  uint64_t posted_ = 0, awaited_ = 0;
  bool woke_ = false;  // the last record was posted to a worker that slept
  uint32_t ping_ = 0;

  Mutex asking_;  // held over a load and its answer
  mutable Mutex end_mutex_;
  absl::Status over_ TG_GUARDED_BY(end_mutex_);  // once it has ended
};

}  // namespace telegrad
