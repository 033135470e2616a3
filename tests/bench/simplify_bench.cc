// Times the way of the ResNet-50 forward graph from tensors to simplified kernels on one core and
// prints milliseconds, best of COUNT: what `WHAT` names.
//
//   indices   the rewriting of every kernel's graph, its index expressions included: simplification
//             while the kernels are built, then the passes before expansion
//   schedule  all of scheduling
//   lower     all of lowering, for a target with vectors of 64 bytes
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "engine/base/status.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/merge_ranges.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/schedule/schedule.h"
#include "tests/models/models.h"

namespace telegrad {
namespace {

using Clock = std::chrono::steady_clock;

absl::StatusOr<double> Milliseconds(const std::function<absl::Status()>& work) {
  const auto begin = Clock::now();
  TG_RETURN_IF_ERROR(work());
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Target Avx512() {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  return target;
}

// The passes of Lower that come before expansion.
absl::Status Simplify(const Schedule& schedule, const Target& target) {
  for (const ScheduledKernel& kernel : schedule.kernels) {
    Budget budget;
    Graph graph;
    Rewriter simplify(&graph, {&kAlgebra, &kDivMod}, &budget);
    Rewriter decompose(&graph, {&kDecompositions, &kAlgebra, &kDivMod}, &budget);
    const UOp root = decompose.Rewrite(CopyLive(kernel.graph.root(), &graph));
    if (root.valid()) MergeRanges(simplify, root, target);
    TG_RETURN_IF_ERROR(graph.status());
  }
  return absl::OkStatus();
}

absl::Status LowerAll(const Schedule& schedule) {
  for (const ScheduledKernel& kernel : schedule.kernels) {
    Budget budget;
    TG_RETURN_IF_ERROR(Lower(kernel.graph, Avx512(), "kernel", &budget).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Once(const FrozenGraph& graph, std::string_view what) {
  Budget budget;
  absl::StatusOr<Schedule> schedule;
  TG_ASSIGN_OR_RETURN(double time, Milliseconds([&] {
                        schedule = ScheduleGraph(graph.root(), &budget);
                        return schedule.status();
                      }));
  if (what == "schedule") return time;
  if (what == "lower") return Milliseconds([&] { return LowerAll(*schedule); });
  if (what == "indices") {
    TG_ASSIGN_OR_RETURN(const double passes,
                        Milliseconds([&] { return Simplify(*schedule, Avx512()); }));
    return time + passes;
  }
  return InvalidArgument("there is no benchmark ", what);
}

absl::StatusOr<double> Measure(std::string_view what, int count) {
  TG_ASSIGN_OR_RETURN(const Plan plan, testing::ResNet50(1));
  double best = 0;
  for (int i = 0; i < count; ++i) {
    TG_ASSIGN_OR_RETURN(const double time, Once(plan.graph, what));
    best = i == 0 ? time : std::min(best, time);
  }
  return best;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "Usage: simplify_bench indices|schedule|lower COUNT\n");
    return 2;
  }
  const absl::StatusOr<double> result = telegrad::Measure(argv[1], count);
  if (!result.ok()) {
    std::fprintf(stderr, "simplify_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.3f\n", *result);
  return 0;
}
