// Searches in the background for faster code of the kernels that take the most device time
// (--search-seconds). One kernel at a time, on a thread of the least priority: its programs run on
// the device in their tenant's turn, behind all other work of that tenant, and once what the device
// has has ended. Processor and device time count as the tenant's that has run the kernel most, and
// the scratch buffers as its memory. Runs use what was found from their next start on.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/execution/device_measure.h"
#include "engine/execution/shared_caches.h"
#include "server/admin/metrics.h"
#include "server/pool/device_pool.h"
#include "server/tenant/tenant.h"

namespace telegrad {

class KernelSearch {
 public:
  struct Options {
    double seconds = 0;                // of a search
    int64_t hot_ns = 0;                // device time from which on a kernel is searched for
    Budget::Limits limits = {};        // of one program
    std::function<void()> ended = {};  // called after each search
  };
  using FindTenant = std::function<absl::StatusOr<std::shared_ptr<Tenant>>(std::string_view)>;

  // Everything given outlives the object. `services` have FoundMoves and KernelHeat.
  KernelSearch(const Options& options, const DevicePool* devices, SharedCaches* caches,
               const KernelServices& services, FindTenant find_tenant, Metrics* metrics);
  // Cancels a search that runs.
  ~KernelSearch();
  KernelSearch(const KernelSearch&) = delete;
  KernelSearch& operator=(const KernelSearch&) = delete;

 private:
  void Loop();
  void Search(const HotKernel& kernel);
  absl::StatusOr<FoundList> SearchOn(Device& device, const HotKernel& kernel,
                                     const std::shared_ptr<Tenant>& tenant, Budget* budget);
  MeasureOptions MeasureFor(Device& device, const HotKernel& kernel,
                            std::shared_ptr<Tenant> tenant);

  const Options options_;
  const DevicePool& devices_;
  SharedCaches& caches_;
  const KernelServices services_;
  const FindTenant find_tenant_;
  Metrics& metrics_;
  Mutex mutex_;
  ConditionVariable wake_;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  // Of all programs that are measured.
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  Budget* running_ TG_GUARDED_BY(mutex_) = nullptr;  // of the search that runs
  std::thread thread_;                               // last: it uses the rest
};

}  // namespace telegrad
