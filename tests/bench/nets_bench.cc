// The models of tests/models on the way to the device, on one thread and without a daemon.
//
// Usage: nets_bench MODE MODEL [REPEATS]
//   schedule  ms of processor time to cut the graph into kernels
//   lower     ms of processor time to lower the different ones among them
//   front     both
//   run       ms of a run of its executable, on as many cores as there are
//   flops     no measurement: the kernels' flops for each of the graph's, every value computed once
//   launches  no measurement: how many there are
//   kernels   no measurement: what telegrad explain prints, then the number of launches
// MODEL is a row of kModels. The figure is the last line; of REPEATS the best one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/explain/explain.h"
#include "engine/ir/content_hash.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

double ProcessorMs() { return static_cast<double>(std::clock()) * 1e3 / CLOCKS_PER_SEC; }

double WallMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// Kernels of the same content are lowered once.
absl::Status LowerAll(const Schedule& schedule, const Target& target) {
  std::set<std::string> seen;
  for (const ScheduledKernel& kernel : schedule.kernels) {
    const std::string hash = ContentHash(kernel.graph.root()).Hex();
    if (!seen.insert(hash).second) continue;
    Budget budget;
    TG_RETURN_IF_ERROR(
        Lower(kernel.graph, target, "kernel", &budget, nullptr, {.weights = kernel.weights})
            .status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Schedule> Kernels(const Plan& plan) {
  Budget budget;
  return ScheduleGraph(plan.graph.root(), &budget, ScheduleOptions::For(HostShape(1)));
}

absl::StatusOr<double> Front(const Plan& plan, bool schedule, bool lower) {
  const double begin = ProcessorMs();
  TG_ASSIGN_OR_RETURN(const Schedule kernels, Kernels(plan));
  const double scheduled = ProcessorMs();
  if (lower) TG_RETURN_IF_ERROR(LowerAll(kernels, HostShape(1)));
  return ProcessorMs() - (schedule ? begin : scheduled);
}

// With each convolution as a kernel of its own, as tinygrad has it: as three, it would be more
// launches and fewer flops.
absl::StatusOr<Explanation> Explain(const Plan& plan) {
  Budget budget;
  Target target = HostShape(1);
  target.winograd = false;
  return ExplainGraph(plan.graph.root(), {}, target, &budget);
}

// Of the graph as it is written, counted as programs count theirs: an operation of floats for each
// element of its result, or for each that it folds.
double GraphFlops(UOp sink) {
  double flops = 0;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kReduce)) flops += static_cast<double>(NumElements(u.src(0).shape()));
    if (Is(u.op(), kAlu) && IsFloat(u.dtype())) {
      flops += static_cast<double>(NumElements(u.shape()));
    }
  }
  return flops;
}

absl::Status Print(const Plan& plan) {
  TG_ASSIGN_OR_RETURN(const Explanation explanation, Explain(plan));
  std::vector<std::string> names;
  for (const Slot& slot : plan.slots) names.push_back(slot.name);
  std::printf("%s%zu\n", ToText(explanation, names).c_str(), explanation.kernels.size());
  return absl::OkStatus();
}

absl::StatusOr<double> Run(const Plan& plan, int repeats) {
  CpuOptions options;
  options.target = HostTarget(0);
  TG_ASSIGN_OR_RETURN(const auto device, OpenCpu(options));
  ExecutableCache cache({});
  Budget budget;
  TG_ASSIGN_OR_RETURN(const auto made,
                      cache.Get(ContentHash(plan.graph.root()), plan.graph, *device, &budget));
  std::vector<BufferView> bindings;
  for (const SlotUse& slot : made.executable->slots()) {
    TG_ASSIGN_OR_RETURN(auto memory, device->Alloc(std::max<int64_t>(slot.bytes, 1)));
    bindings.push_back({std::move(memory), 0, slot.bytes, NewContent()});
  }
  double best = std::numeric_limits<double>::infinity();
  // The first run touches new memory, the second one packs weights.
  constexpr int kWarm = 2;
  for (int i = 0; i < repeats + kWarm; ++i) {
    const double begin = WallMs();
    TG_ASSIGN_OR_RETURN(const TimelinePoint end, made.executable->Submit(bindings, {}));
    TG_RETURN_IF_ERROR(end.Wait());
    if (i >= kWarm) best = std::min(best, WallMs() - begin);
  }
  return best;
}

absl::StatusOr<double> Measure(std::string_view mode, const Plan& plan, int repeats) {
  if (mode == "run") return Run(plan, repeats);
  if (mode == "flops" || mode == "launches") {
    TG_ASSIGN_OR_RETURN(const Explanation explanation, Explain(plan));
    return mode == "flops" ? explanation.flops / GraphFlops(plan.graph.root())
                           : static_cast<double>(explanation.kernels.size());
  }
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    TG_ASSIGN_OR_RETURN(const double ms, Front(plan, mode != "lower", mode != "schedule"));
    best = std::min(best, ms);
  }
  return best;
}

absl::Status Main(std::string_view mode, std::string_view name, int repeats) {
  const auto* model = std::ranges::find(testing::kModels, name, &testing::NamedModel::name);
  if (model == std::end(testing::kModels)) return InvalidArgument("there is no model ", name);
  TG_ASSIGN_OR_RETURN(const Plan plan, model->plan());
  if (mode == "kernels") return Print(plan);
  TG_ASSIGN_OR_RETURN(const double ms, Measure(mode, plan, repeats));
  std::printf("%.3f\n", ms);
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  constexpr std::string_view kModes[] = {"schedule", "lower",    "front",  "run",
                                         "flops",    "launches", "kernels"};
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 5;
  if (argc < 3 || argc > 4 || repeats < 1 || std::ranges::count(kModes, argv[1]) == 0) {
    std::fprintf(stderr, "Usage: nets_bench MODE MODEL [REPEATS]; see the head of its source\n");
    return 2;
  }
  const absl::Status status = telegrad::Main(argv[1], argv[2], repeats);
  if (status.ok()) return 0;
  std::fprintf(stderr, "nets_bench: %s\n", status.ToString().c_str());
  return 1;
}
