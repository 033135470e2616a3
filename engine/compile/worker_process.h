// One worker process, seen from the daemon: started with nothing of the daemon's but a socket,
// bounded in memory, asked one thing at a time, killed when it is of no use any more.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/temporary_folder.h"
#include "engine/compile/worker_protocol.h"
#include "engine/process/child_process.h"
#include "engine/process/frame.h"

namespace telegrad {

class WorkerProcess {
 public:
  struct Options {
    std::string executable;
    // The OpenCL loader by which it compiles OpenCL C; empty: it compiles none. Its drivers get a
    // folder of their own, which goes with the process, and nothing of the user's.
    std::string opencl_library;
    int64_t memory_bytes = 0;  // of address space, where kLimitsMemory; 0: no limit
    int nice = 0;              // see nice(2)
  };

  // Starts one and waits for its hello with that patience, see PatienceLeft. The process lives no
  // longer than the calling thread.
  // UNAVAILABLE, naming the executable and what happened; ABORTED, likewise, where somebody has
  // ended the process, which says nothing of the next one.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const Options& options,
                                                              std::chrono::nanoseconds patience);
  // Kills it.
  ~WorkerProcess() = default;

  const std::string& identity() const { return hello_.identity; }
  // Whether it was ended from outside; once Start or an Ask has failed.
  bool was_killed() const { return process_->was_killed(); }

  // Whether it waits for a request. False once it has died or said something unasked.
  bool IsIdle() const { return process_->IsQuiet(); }

  // Its answer. DEADLINE_EXCEEDED where it worked on it for longer than `patience`, which does not
  // include waiting for a processor (see PatienceLeft); ABORTED, saying what happened, where it
  // died or its answer was none. After either it is good for nothing but destruction.
  absl::StatusOr<WorkerAnswer> Ask(const WorkerRequest& request, std::chrono::nanoseconds patience);
  // Thread-safe: ends an Ask as if the process had died; nobody waits for what it is doing.
  void Interrupt() { process_->Interrupt(); }

 private:
  WorkerProcess(std::unique_ptr<ChildProcess> process, std::optional<TemporaryFolder> folder)
      : folder_(std::move(folder)), process_(std::move(process)) {}

  absl::Status Greet(std::chrono::nanoseconds patience);

  const std::optional<TemporaryFolder> folder_;  // that is its own, and goes after the process
  std::unique_ptr<ChildProcess> process_;
  WorkerHello hello_;
};

// telegrad-compile-worker in the folder of this process's executable. NOT_FOUND names the path.
absl::StatusOr<std::string> FindCompileWorker();

}  // namespace telegrad
