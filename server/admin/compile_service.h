// The compilation of kernels in this daemon: its compile workers, its cache on disk, the reports of
// kernels that failed, and the metrics of these.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/compile/compile_pool.h"
#include "engine/execution/kernel_services.h"
#include "server/admin/metrics.h"

namespace telegrad {

class CompileService {
 public:
  struct Options {
    int workers = 0;             // 0: none, this process compiles
    std::string opencl_library;  // see CompilePool::Options
    std::chrono::milliseconds kernel_time{30'000};
    int64_t worker_memory = 0;
    int nice = 0;
    std::string store;  // folders; empty: none
    int64_t store_bytes = 0;
    std::string reproducers;
    bool search = false;      // for better moves of kernels, see server/tenant/kernel_search.h
    std::string found_moves;  // the folder of what was found; empty: none
  };

  // FAILED_PRECONDITION for a folder that cannot be trusted, NOT_FOUND or UNAVAILABLE if workers
  // cannot be started.
  static absl::StatusOr<std::unique_ptr<CompileService>> Start(const Options& options);

  const KernelServices& services() const { return services_; }
  void CollectInto(Metrics& metrics) const;

 private:
  CompileService() = default;
  // Logs the failure, with the kernel as text or the name of the file that has it.
  void Report(const FailedKernel& kernel);

  std::shared_ptr<CompilePool> pool_;
  std::shared_ptr<KernelStore> store_;
  std::unique_ptr<PrivateDirectory> reproducers_;
  KernelServices services_;
  std::atomic<int64_t> failures_{0};
};

}  // namespace telegrad
