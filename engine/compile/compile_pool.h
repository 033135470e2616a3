// Kernels compiled by worker processes, so that a crash, a hang or a leak of LLVM costs one kernel
// and not the daemon.
//
// A kernel whose worker dies or talks nonsense is tried once more in a fresh one; the second time
// it is INTERNAL. A worker that was killed from outside (by an operator, on a machine out of
// memory) counts less: several of them may be, one after another, before the kernel fails for it.
// One that takes longer than its deadline is INTERNAL at once: its worker is killed, and to wait as
// long again would only double the harm. The time in which a worker of low priority waits for a
// processor does not count. Kernels on other workers never notice.
//
// Tenants take turns, see FairTasks: who compiles for a tenant of many kernels does not keep one of
// few waiting for them. A kernel in a worker is not interrupted for that: while all workers are
// busy, a tenant with none gets one of a few spare ones, which are started then and end when they
// are not needed.
//
// Whoever cancels while a worker has its kernel pays for what that took so far; the worker is
// killed and the next one takes its place. Where the time of a job is up, its worker goes on within
// the deadline of one kernel, as a task of the same tenant: who sends the same kernel again waits
// for it, or finds it done. So a graph that takes longer than its time, as on a busy machine, gets
// on with every attempt. Where nobody waits for it any more, the tenant pays for the rest with the
// next kernel that it has compiled.
//
// A worker that has ended is started again, at first at once, then after a delay that doubles until
// one has compiled something. While no worker can be started, kernels fail with UNAVAILABLE. That a
// worker is killed from outside as it starts does not mean that none can be started, unless it
// happens several times, one after another.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/compile/kernel_compiler.h"

namespace telegrad {

class CompilePool : public KernelCompiler {
 public:
  struct Options {
    std::string executable;      // of the workers
    std::string opencl_library;  // see WorkerProcess::Options
    int workers = 1;
    int spare = 0;  // further ones, for tenants that have none while all of the others are busy
    std::chrono::milliseconds spare_idle{10'000};  // after which a spare one ends
    std::chrono::milliseconds deadline{30'000};    // of one kernel in a worker
    int attempts = 8;  // for one kernel, whose workers are killed, and to start one worker
    int64_t memory_bytes = int64_t{4} << 30;  // of one worker's address space; 0: no limit
    int nice = 0;                             // the workers' priority, see nice(2)
    std::chrono::milliseconds first_delay{50}, last_delay{5'000};  // between starts
    // Told of every worker that ended unasked: what happened, and the kernel it had, if any.
    std::function<void(const std::string& what, const std::string& kernel)> on_death;
  };
  struct Stats {  // totals since construction, but for the last three
    uint64_t deaths = 0;
    uint64_t retries = 0;
    int64_t workers = 0;    // that are alive
    int64_t compiling = 0;  // kernels that are with a worker
    int64_t waiting = 0;    // kernels that wait for one
  };

  // Starts the workers and returns when the first is ready; the error of the last if none can be
  // started.
  static absl::StatusOr<std::unique_ptr<CompilePool>> Start(const Options& options);

  virtual Stats stats() const = 0;
};

}  // namespace telegrad
