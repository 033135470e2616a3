// Once a second it looks for the kernel that has taken the most device time since it was last
// searched for, and measures programs for it until the time for one kernel is over.
#include "server/tenant/kernel_search.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status.h"
#include "engine/lowering/choose/search.h"
#include "server/admin/log.h"
#include "server/pool/session_queues.h"

namespace telegrad {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);  // between two looks for a hot kernel
constexpr int kNice = 19;
constexpr int64_t kScratchShare = 8;  // of the device's memory
constexpr absl::Duration kIdleWait = absl::Seconds(1);
constexpr absl::Duration kRunWait = absl::Seconds(60);

// Charges this thread's processor time, and what other threads and processes have worked for the
// budget, as compile time.
class ChargedTime {
 public:
  ChargedTime(Tenant* tenant, const Budget* budget) : tenant_(tenant), budget_(*budget) {}
  ~ChargedTime() {
    if (tenant_ == nullptr) return;
    tenant_->compile_time->Correct(0, ThreadCpuNs() - begin_ + budget_.worked_ns());
  }
  ChargedTime(const ChargedTime&) = delete;
  ChargedTime& operator=(const ChargedTime&) = delete;

 private:
  Tenant* const tenant_;
  const Budget& budget_;
  const int64_t begin_ = ThreadCpuNs();
};

}  // namespace

KernelSearch::KernelSearch(const Options& options, const DevicePool* devices, SharedCaches* caches,
                           const KernelServices& services, FindTenant find_tenant, Metrics* metrics)
    : options_(options),
      devices_(*devices),
      caches_(*caches),
      services_(services),
      find_tenant_(std::move(find_tenant)),
      metrics_(*metrics),
      thread_([this] { Loop(); }) {}

KernelSearch::~KernelSearch() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    if (running_ != nullptr) running_->Cancel();
    cancellation_->Cancel();
  }
  wake_.notify_all();
  thread_.join();
}

void KernelSearch::Loop() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  ReleasableLock lock(mutex_);
  while (true) {
    const auto until = std::chrono::steady_clock::now() + kInterval;
    while (!stop_ && wake_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    if (stop_) return;
    lock.unlock();
    if (const auto hot = services_.heat->TakeHottest(options_.hot_ns)) {
      Search(*hot);
      if (options_.ended) options_.ended();
    }
    lock.lock();
  }
}

// A program waits until the device has nothing else, though not for ever, and then for its tenant's
// turn.
MeasureOptions KernelSearch::MeasureFor(Device& device, const HotKernel& kernel,
                                        std::shared_ptr<Tenant> tenant) {
  MeasureOptions options;
  options.memory_bytes = device.memory_limit() / kScratchShare;
  if (tenant != nullptr) {
    options.alloc = [&device, tenant](int64_t bytes) { return tenant->Alloc(device, bytes); };
  }
  const auto queues = std::make_shared<SessionQueues>(&devices_, kernel.share);
  FairQueue* const queue = devices_.queue(device, QueueKind::kCompute);
  options.run = [&device, queues, queue, tenant, this](
                    std::shared_ptr<const std::vector<RunSlice>> slices,
                    const std::vector<BufferView>& bindings) -> absl::StatusOr<double> {
    if (queue != nullptr) queue->Drained().Wait(kIdleWait).IgnoreError();
    const auto taken = std::make_shared<DeviceTime>();
    // Each slice is charged when it ends, also where nobody waits for the program any more.
    taken->ended_slice = [tenant, metrics = &metrics_](int64_t ns) {
      metrics->Add(Metric::kSearchDeviceNs, ns);
      if (tenant != nullptr) tenant->device_time->Correct(0, ns);
    };
    QueuesForRun low(queues.get(), Priority::kLow, INT64_MAX, taken);
    SlicedWork work;
    work.slices = std::move(slices);
    work.bindings = bindings;
    const auto cancellation = std::make_shared<Cancellation>(cancellation_, nullptr, INT64_MAX);
    work.cancellation = cancellation;
    TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                        low.Submit(device, QueueKind::kCompute, std::move(work)));
    const absl::Status ended = point.Wait(kRunWait);
    if (absl::IsDeadlineExceeded(ended)) cancellation->Cancel();  // its buffers are used no more
    TG_RETURN_IF_ERROR(ended);
    return static_cast<double>(taken->all_ns()) * 1e-9;
  };
  return options;
}

absl::StatusOr<FoundList> KernelSearch::SearchOn(Device& device, const HotKernel& kernel,
                                                 const std::shared_ptr<Tenant>& tenant,
                                                 Budget* budget) {
  const ChargedTime charged(tenant.get(), budget);
  DeviceMeasure measure(device, services_.compiler, MeasureFor(device, kernel, tenant));
  SearchOptions options;
  options.seconds = options_.seconds;
  TG_ASSIGN_OR_RETURN(
      const SearchResult found,
      SearchMoves(kernel.graph, device.target(), kernel.weights, measure, options, budget));
  metrics_.Add(Metric::kSearchPrograms, found.measured);
  FoundList list{.moves = Print(found.best),
                 .better = found.improved(),
                 .heuristic_ns = static_cast<int64_t>(found.heuristic_seconds * 1e9),
                 .best_ns = static_cast<int64_t>(found.best_seconds * 1e9),
                 .measured = found.measured};
  services_.found->Put(kernel.key, list);
  // So that runs find it compiled.
  if (list.better) {
    TG_RETURN_IF_ERROR(
        caches_.kernels.Get(kernel.graph, device, budget, {kernel.weights, kernel.results})
            .status());
  }
  return list;
}

void KernelSearch::Search(const HotKernel& kernel) {
  const auto device = devices_.Find(kernel.device);
  // One of a tenant's own, or a kernel that was searched for before.
  if (!device.ok() || kernel.share == nullptr || services_.found->Get(kernel.key)) return;
  const auto tenant = find_tenant_(kernel.share->name());
  Budget::Limits limits = options_.limits;
  // The search ends by its own clock; this is for what hangs.
  limits.time += std::chrono::milliseconds(static_cast<int64_t>(options_.seconds * 2e3));
  Budget budget(limits);
  budget.SetShare(kernel.share);
  {
    const MutexLock lock(mutex_);
    if (stop_) return;
    running_ = &budget;
  }
  const int64_t begin = SteadyNs();
  // As the tenant uses it, so that what is measured works where its own kernels do.
  Device& used = tenant.ok() ? *(*tenant)->View(**device) : **device;
  const auto list = SearchOn(used, kernel, tenant.ok() ? *tenant : nullptr, &budget);
  {
    const MutexLock lock(mutex_);
    running_ = nullptr;
  }
  metrics_.Add(Metric::kSearchNs, SteadyNs() - begin);
  if (!list.ok()) {
    // The device was busy, which says nothing of the kernel.
    if (absl::IsDeadlineExceeded(list.status())) services_.heat->PutBack(kernel.key);
    Log(LogLevel::kWarning, "search_failed",
        {{"kernel", kernel.name}, {"error", list.status().message()}});
    return;
  }
  metrics_.Add(Metric::kSearches);
  if (list->better) {
    metrics_.Add(Metric::kSearchesBetter);
    metrics_.Add(Metric::kSearchSavedNs, list->heuristic_ns - list->best_ns);
  }
  Log(LogLevel::kInfo, list->better ? "moves_found" : "moves_kept",
      {{"kernel", kernel.name},
       {"device", kernel.device},
       {"heuristic_us", list->heuristic_ns / 1000},
       {"best_us", list->best_ns / 1000},
       {"programs", list->measured},
       {"moves", list->moves}});
}

}  // namespace telegrad
