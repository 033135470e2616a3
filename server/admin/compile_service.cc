// Starts the compile workers and the cache on disk by the daemon's flags, and writes kernels
// that could not be compiled to the folder of reproducers or to the log.
#include "server/admin/compile_service.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/compile/worker_process.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr PrivateDirectory::Limits kReproducers{.bytes = int64_t{64} << 20, .files = 256};
constexpr int kSpareWorkers = 4;
constexpr size_t kMaxLoggedText = size_t{64} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<CompileService>> CompileService::Start(const Options& options) {
  std::unique_ptr<CompileService> out(new CompileService());
  CompileService* const self = out.get();
  if (!options.reproducers.empty()) {
    TG_ASSIGN_OR_RETURN(out->reproducers_,
                        PrivateDirectory::Open(options.reproducers, kReproducers));
  }
  if (!options.store.empty()) {
    TG_ASSIGN_OR_RETURN(
        out->store_,
        KernelStore::Open(
            {options.store, {.bytes = options.store_bytes}, [](const absl::Status& status) {
               Log(LogLevel::kWarning, "kernel_cache_not_written", {{"error", status.message()}});
             }}));
  }
  if (options.workers > 0) {
    CompilePool::Options pool;
    TG_ASSIGN_OR_RETURN(pool.executable, FindCompileWorker());
    pool.opencl_library = options.opencl_library;
    pool.workers = options.workers;
    pool.spare = kSpareWorkers;
    pool.deadline = options.kernel_time;
    pool.memory_bytes = options.worker_memory;
    pool.nice = options.nice;
    pool.on_death = [](const std::string& what, const std::string& kernel) {
      Log(LogLevel::kWarning, "compile_worker_ended", {{"kernel", kernel}, {"what", what}});
    };
    TG_ASSIGN_OR_RETURN(out->pool_, CompilePool::Start(pool));
  }
  std::shared_ptr<KernelCompiler> compiler = out->pool_;
  if (compiler == nullptr) compiler = CompileInProcess({options.opencl_library});
  out->services_ = {.compiler = compiler,
                    .store = out->store_,
                    .on_failure = [self](const FailedKernel& kernel) { self->Report(kernel); }};
  if (options.search) {
    TG_ASSIGN_OR_RETURN(
        out->services_.found,
        FoundMoves::Open({.path = options.found_moves,
                          .on_ignored = [](const std::string& what, const std::string& why) {
                            Log(LogLevel::kWarning, "moves_ignored",
                                {{"file", what}, {"why", why}});
                          }}));
    out->services_.heat = std::make_shared<KernelHeat>();
  }
  return out;
}

void CompileService::Report(const FailedKernel& kernel) {
  failures_.fetch_add(1);
  const std::string file = kernel.name + ".uop";
  absl::Status kept = FailedPrecondition("no --reproducers folder");
  if (reproducers_ != nullptr) kept = reproducers_->Write(file, kernel.reproducer);
  if (kept.ok()) {
    Log(LogLevel::kError, "kernel_failed",
        {{"kernel", kernel.name},
         {"error", kernel.status.message()},
         {"replay",
          StrCat("telegrad-opt ", kernel.replay_flags, " ", reproducers_->path(), "/", file)}});
    return;
  }
  Log(LogLevel::kError, "kernel_failed",
      {{"kernel", kernel.name},
       {"error", kernel.status.message()},
       {"replay", StrCat("telegrad-opt ", kernel.replay_flags, " FILE")},
       {"not_kept", kept.message()},
       {"text", kernel.reproducer.substr(0, kMaxLoggedText)}});
}

void CompileService::CollectInto(Metrics& metrics) const {
  metrics.Set(Metric::kKernelFailures, failures_.load());
  if (services_.found != nullptr)
    metrics.Set(Metric::kMovesIgnored, services_.found->stats().ignored);
  if (store_ != nullptr) {
    const KernelStore::Stats stats = store_->stats();
    const std::pair<Metric, uint64_t> rows[] = {
        {Metric::kKernelsLoaded, stats.hits},     {Metric::kStoreMisses, stats.misses},
        {Metric::kStoreRejected, stats.rejected}, {Metric::kStoreWriteErrors, stats.write_errors},
        {Metric::kStoreEvictions, stats.evicted},
    };
    for (const auto& [metric, n] : rows) metrics.Set(metric, static_cast<int64_t>(n));
    metrics.Set(Metric::kStoreBytes, stats.bytes);
  }
  if (pool_ != nullptr) {
    const CompilePool::Stats stats = pool_->stats();
    metrics.Set(Metric::kCompileWorkers, stats.workers);
    metrics.Set(Metric::kCompiling, stats.compiling);
    metrics.Set(Metric::kCompileWaiting, stats.waiting);
    metrics.Set(Metric::kWorkerDeaths, static_cast<int64_t>(stats.deaths));
    metrics.Set(Metric::kCompileRetries, static_cast<int64_t>(stats.retries));
  }
}

}  // namespace telegrad
