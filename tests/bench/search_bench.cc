// The heuristic's moves against those that BEAM search finds, on the kernels of a network that take
// the most time, measured on this machine's processor.
//
//   search_bench MODEL SECONDS KERNELS
//
// A line for each kernel: how often the network launches it, milliseconds with the heuristic's list
// and with the best one, the quotient, how many programs were measured, and the best list. The last
// lines have the geometric mean of the quotients, and the time of all launches of these kernels
// with either. SECONDS are for each kernel.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/device_measure.h"
#include "engine/ir/content_hash.h"
#include "engine/lowering/choose/search.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

struct Unique {
  std::string hash, name;
  const ScheduledKernel* kernel;
  int launches = 0;
  double seconds = 0;  // of a launch
};

absl::Status Run(const Plan& plan, double seconds, size_t most) {
  CpuOptions options;
  options.target = HostTarget(0);
  TG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenCpu(options));
  const std::shared_ptr<KernelCompiler> compiler = CompileInProcess();
  Budget budget({.time = std::chrono::hours(24)});
  TG_ASSIGN_OR_RETURN(
      const Schedule schedule,
      ScheduleGraph(plan.graph.root(), &budget, ScheduleOptions::For(device->target())));
  std::vector<Unique> kernels;
  for (size_t i = 0; i < schedule.kernels.size(); ++i) {
    const std::string hash = ContentHash(schedule.kernels[i].graph.root()).Hex();
    const auto at = std::ranges::find(kernels, hash, &Unique::hash);
    if (at != kernels.end()) {
      ++at->launches;
      continue;
    }
    Unique& u = kernels.emplace_back(hash, StrCat("kernel", i), &schedule.kernels[i], 1);
    Budget own;
    TG_ASSIGN_OR_RETURN(const Program program,
                        Lower(u.kernel->graph, device->target(), u.name, &own, nullptr,
                              {.weights = u.kernel->weights}));
    DeviceMeasure measure(*device, compiler);
    TG_ASSIGN_OR_RETURN(u.seconds, measure.Seconds(program, HUGE_VAL, &own));
  }
  std::ranges::stable_sort(kernels, std::greater<>{},
                           [](const Unique& u) { return u.seconds * u.launches; });
  if (kernels.size() > most) kernels.resize(most);
  double logarithms = 0, heuristic = 0, best = 0;
  for (const Unique& u : kernels) {
    DeviceMeasure measure(*device, compiler);
    SearchOptions search;
    search.seconds = seconds;
    TG_ASSIGN_OR_RETURN(const SearchResult found,
                        SearchMoves(u.kernel->graph, device->target(), u.kernel->weights, measure,
                                    search, &budget));
    const double ratio = found.heuristic_seconds / found.best_seconds;
    logarithms += std::log(ratio);
    heuristic += found.heuristic_seconds * u.launches;
    best += found.best_seconds * u.launches;
    std::printf("%-10s x%-3d %9.3f %9.3f ms %5.2f %5d programs\n  was %s\n  now %s\n",
                u.name.c_str(), u.launches, found.heuristic_seconds * 1e3, found.best_seconds * 1e3,
                ratio, found.measured, Print(found.heuristic).c_str(), Print(found.best).c_str());
    std::fflush(stdout);
  }
  std::printf("%zu kernels, geometric mean %.3f, all launches %.3f ms, with the best %.3f ms\n",
              kernels.size(), std::exp(logarithms / static_cast<double>(kernels.size())),
              heuristic * 1e3, best * 1e3);
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const double seconds = argc == 4 ? std::atof(argv[2]) : 0;
  const int most = argc == 4 ? std::atoi(argv[3]) : 0;
  for (const telegrad::testing::NamedModel& model : telegrad::testing::kModels) {
    if (argc != 4 || seconds <= 0 || most <= 0 || model.name != argv[1]) continue;
    const auto plan = model.plan();
    const absl::Status status =
        plan.ok() ? telegrad::Run(*plan, seconds, static_cast<size_t>(most)) : plan.status();
    if (status.ok()) return 0;
    std::fprintf(stderr, "search_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  std::fprintf(stderr, "Usage: search_bench MODEL SECONDS KERNELS\n");
  return 2;
}
