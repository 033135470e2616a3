// How long it takes until a model can run: from its graph to an executable whose kernels are
// loaded, through the compile service as a daemon has it, on all cores. Prints milliseconds, the
// least of REPEATS.
//
// Usage: start_bench cold|warm MODEL REPEATS
//   cold  nothing is cached; the compile workers are there, as a running daemon's are
//   warm  every kernel is in the cache on disk, opened anew each time; no compiler is there
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compile_pool.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/ir/content_hash.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "start_bench.XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Milliseconds to an executable.
absl::StatusOr<double> Start(const FrozenGraph& graph, Device& device,
                             const KernelServices& services, uint64_t* compiled) {
  ExecutableCache cache({}, services);
  Budget budget;
  const Digest hash = ContentHash(graph.root());
  const auto begin = std::chrono::steady_clock::now();
  TG_RETURN_IF_ERROR(cache.Get(hash, graph, device, &budget).status());
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  *compiled = cache.stats().kernels_compiled;
  return time.count();
}

absl::StatusOr<double> Measure(std::string_view mode, std::string_view model, int repeats) {
  const auto* const row = std::ranges::find(testing::kModels, model, &testing::NamedModel::name);
  if (row == std::end(testing::kModels)) return InvalidArgument("there is no model ", model);
  if (mode != "cold" && mode != "warm") return InvalidArgument("there is no mode ", mode);
  TG_ASSIGN_OR_RETURN(const Plan plan, row->plan());
  const Target target = HostTarget(0);
  TG_ASSIGN_OR_RETURN(const auto device, OpenCpu({.threads = target.threads, .target = target}));
  CompilePool::Options options;
  options.executable = COMPILE_WORKER;
  options.workers = target.threads;
  TG_ASSIGN_OR_RETURN(std::unique_ptr<CompilePool> started, CompilePool::Start(options));
  const std::shared_ptr<CompilePool> pool = std::move(started);
  while (pool->stats().workers < options.workers) std::this_thread::yield();
  const Folder folder;
  double best = 1e9;
  uint64_t compiled = 0, all = 0;
  for (int i = 0; i < repeats; ++i) {
    if (mode == "cold") {
      TG_ASSIGN_OR_RETURN(const double time,
                          Start(plan.graph, *device, {pool, nullptr, nullptr}, &compiled));
      best = std::min(best, time);
      continue;
    }
    const auto services = [&]() -> absl::StatusOr<KernelServices> {
      TG_ASSIGN_OR_RETURN(auto store, KernelStore::Open({folder.path(), {}, nullptr}));
      return KernelServices{pool, std::move(store), nullptr};
    };
    if (i == 0) {
      TG_ASSIGN_OR_RETURN(const KernelServices first, services());
      TG_RETURN_IF_ERROR(Start(plan.graph, *device, first, &all).status());
    }
    TG_ASSIGN_OR_RETURN(const KernelServices again, services());
    TG_ASSIGN_OR_RETURN(const double time, Start(plan.graph, *device, again, &compiled));
    if (compiled != 0) return Internal(compiled, " of ", all, " kernels were compiled again");
    best = std::min(best, time);
  }
  return best;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int repeats = argc == 4 ? std::atoi(argv[3]) : 0;
  if (repeats <= 0) {
    std::fprintf(stderr, "Usage: start_bench cold|warm MODEL REPEATS\n");
    return 2;
  }
  const absl::StatusOr<double> result = telegrad::Measure(argv[1], argv[2], repeats);
  if (!result.ok()) {
    std::fprintf(stderr, "start_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.3f\n", *result);
  return 0;
}
