// Steps that simplify the tensor graph, then the plan of its kernels, then their order. Where the
// kernels form a cycle, they are planned again with more caution.
#include "engine/schedule/schedule.h"

#include <optional>
#include <utility>

#include "engine/ir/product_tile.h"
#include "engine/schedule/byte_products.h"
#include "engine/schedule/choose_rows.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/graph_steps.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/order_kernels.h"

namespace telegrad {

// Whether the threads of a workgroup share rows of scores (engine/lowering/workgroup_online.h).
static bool KeepsRows(const Target& target) {
  return target.has(ParallelLevel::kWarps) && target.stages;
}

ScheduleOptions ScheduleOptions::For(const Target& target) {
  const MachineCosts& machine = CostsOf(target);
  const bool transforms = target.winograd && !target.deterministic;
  return {.machine = &machine,
          // Private memory is in the cache that a thread has to itself, if it has one.
          .private_bytes = target.cache_bytes > 0 ? machine.schedule.kept_bytes : 0,
          .row_blocks = !target.deterministic,
          .row_bytes = KeepsRows(target) ? target.local_bytes : 0,
          .row_groups = KeepsRows(target) ? target.threads : 0,
          .row_warp = KeepsRows(target) ? WarpRows(target) : 1,
          .multiply_adds = transforms ? target.lanes() * target.vector_rate : 0,
          .product_target =
              target.stages && target.local_bytes > 0 ? std::optional(target) : std::nullopt,
          .dots = target.dots,
          .fixed_sums = target.deterministic};
}

absl::StatusOr<Schedule> ScheduleGraph(UOp sink, std::span<const VarValue> variables,
                                       Budget* budget, const ScheduleOptions& target) {
  TG_ASSIGN_OR_RETURN(FrozenGraph legal, Legalize(sink, variables, budget));
  TG_ASSIGN_OR_RETURN(legal, RunGraphSteps(std::move(legal), GraphSteps(), target, budget));
  return ScheduleKernels(legal, budget, target);
}

absl::StatusOr<Schedule> ScheduleKernels(const FrozenGraph& legal, Budget* budget,
                                         const ScheduleOptions& target) {
  TG_ASSIGN_OR_RETURN(ChosenRows chosen, ChooseRows(legal, target, budget));
  const UOp sink = chosen.rows.graph.root();
  Budget::Held held(budget);
  TG_RETURN_IF_ERROR(held.Grow(sink.graph()->bytes()));
  const Budget::Doing doing(budget, "scheduling");
  FusionOptions options = WithRows(FusionOptionsFor(target), chosen.rows);
  if (target.dots) {
    const size_t fused = options.fused.size();
    SumsOfBytes bytes = FindSumsOfBytes(sink, budget);
    options.fused.merge(bytes.operands);
    options.sums_of_bytes = std::move(bytes.sums);
    if (options.fused.size() != fused || !options.sums_of_bytes.empty()) chosen.plan.reset();
  }
  for (Caution caution : {Caution::kNone, Caution::kSplitStores, Caution::kSnapshotVersions}) {
    while (true) {
      // What was planned to choose the rows is the first attempt.
      if (!chosen.plan) {
        TG_ASSIGN_OR_RETURN(chosen.plan, PlanFusion(sink, options, budget));
      }
      FusionPlan fusion = *std::exchange(chosen.plan, std::nullopt);
      TG_ASSIGN_OR_RETURN(Attempt attempt,
                          OrderKernels(sink, std::move(fusion), caution, target, budget));
      if (attempt.schedule.has_value()) return *std::move(attempt.schedule);
      const size_t before = options.alone.size();
      options.alone.insert(attempt.to_be_written_alone.begin(), attempt.to_be_written_alone.end());
      if (options.alone.size() == before) break;
    }
  }
  return Internal("schedule: the kernels form a cycle");
}

}  // namespace telegrad
