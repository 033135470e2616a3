// Steps that simplify the tensor graph, then the plan of its kernels, then their order. Where the
// kernels form a cycle, they are planned again with more caution.
#include "engine/schedule/schedule.h"

#include <optional>
#include <utility>

#include "engine/schedule/byte_products.h"
#include "engine/schedule/channels_last.h"
#include "engine/schedule/choose_rows.h"
#include "engine/schedule/collapse.h"
#include "engine/schedule/exchange_sums.h"
#include "engine/schedule/fixed_sums.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/mask_scores.h"
#include "engine/schedule/order_kernels.h"
#include "engine/schedule/scaled_sums.h"
#include "engine/schedule/score_form.h"
#include "engine/schedule/sign_masks.h"
#include "engine/schedule/split_reduce.h"
#include "engine/schedule/store_shape.h"
#include "engine/schedule/window_sums.h"

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
          .multiply_adds = transforms ? target.lanes() * target.vector_rate : 0,
          .product_target =
              target.stages && target.local_bytes > 0 ? std::optional(target) : std::nullopt,
          .dots = target.dots,
          .fixed_sums = target.deterministic};
}

// The steps between what clients may send and the plan of kernels.
static absl::StatusOr<FrozenGraph> Simplify(FrozenGraph legal, const ScheduleOptions& target,
                                            Budget* budget) {
  TG_ASSIGN_OR_RETURN(legal, SimplifyScores(std::move(legal), budget));
  TG_ASSIGN_OR_RETURN(legal, SimplifyWindowSums(std::move(legal), target.fixed_sums, budget));
  if (target.dots && !target.fixed_sums) {
    TG_ASSIGN_OR_RETURN(legal, ScaleSums(std::move(legal), budget));
  }
  TG_ASSIGN_OR_RETURN(legal, AddSmallProductsInFloat(std::move(legal), target.dots, budget));
  if (target.fixed_sums) {
    TG_ASSIGN_OR_RETURN(legal, RoundSharedProducts(std::move(legal), budget));
  } else {
    TG_ASSIGN_OR_RETURN(legal, ExchangeSums(std::move(legal), budget));
  }
  TG_ASSIGN_OR_RETURN(legal, SplitReductions(std::move(legal), target.machine->schedule.split,
                                             target.fixed_sums, budget));
  if (target.product_target) {
    TG_ASSIGN_OR_RETURN(legal, StoreChannelsLast(std::move(legal), *target.product_target, budget));
  }
  if (target.private_bytes > 0 || target.row_bytes > 0) {
    const bool only_weighted = target.private_bytes == 0;
    TG_ASSIGN_OR_RETURN(legal, StoreInOwnShape(std::move(legal), only_weighted, budget));
  }
  return legal;
}

// With scores masked in place of reductions where kernels then keep all of their rows.
static absl::StatusOr<FrozenGraph> SimplifyWithMasks(FrozenGraph legal,
                                                     const ScheduleOptions& target,
                                                     Budget* budget) {
  if (target.row_bytes > 0) {
    TG_ASSIGN_OR_RETURN(FrozenGraph masked, MaskScores(legal, budget));
    if (masked.graph != legal.graph) {
      TG_ASSIGN_OR_RETURN(masked, Simplify(std::move(masked), target, budget));
      TG_ASSIGN_OR_RETURN(const FusionPlan plan,
                          PlanFusion(masked.root(), FusionOptionsFor(target), budget));
      if (KeepsMaskedRows(*masked.graph, plan)) return masked;
    }
  }
  return Simplify(std::move(legal), target, budget);
}

absl::StatusOr<Schedule> ScheduleGraph(UOp client_sink, std::span<const VarValue> variables,
                                       Budget* budget, const ScheduleOptions& target) {
  TG_ASSIGN_OR_RETURN(FrozenGraph legal, Legalize(client_sink, variables, budget));
  TG_ASSIGN_OR_RETURN(legal, CollapseReductions(legal.root(), budget));
  TG_ASSIGN_OR_RETURN(legal, MasksOfResults(std::move(legal), budget));
  TG_ASSIGN_OR_RETURN(legal, SimplifyWithMasks(std::move(legal), target, budget));
  TG_ASSIGN_OR_RETURN(RecomputedRows graph, ChooseRows(legal, target, budget));
  const UOp sink = graph.graph.root();
  Budget::Held held(budget);
  TG_RETURN_IF_ERROR(held.Grow(graph.graph.graph->bytes()));
  const Budget::Doing doing(budget, "scheduling");
  FusionOptions options = FusionOptionsFor(target);
  options.rows = std::move(graph.rows);
  options.fused = std::move(graph.fused);
  options.apart = std::move(graph.statistics);
  if (target.dots) options.fused.merge(OperandsOfBytes(sink, budget));
  for (Caution caution : {Caution::kNone, Caution::kSplitStores, Caution::kSnapshotVersions}) {
    while (true) {
      TG_ASSIGN_OR_RETURN(FusionPlan fusion, PlanFusion(sink, options, budget));
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
