// The plan says whether kernels keep the rows that they would compute again. Where they do not, the
// maxima and sums get a kernel of their own, or nothing is computed again.
#include "engine/schedule/choose_rows.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace telegrad {
namespace {

// Whether kernels keep the values for themselves: otherwise all of them would be in memory, and
// computed more often.
bool KeepsRows(const FusionPlan& plan, const RecomputedRows& graph) {
  absl::flat_hash_set<uint32_t> kept;
  for (const PlannedKernel& kernel : plan.kernels) {
    kept.insert(kernel.kept.begin(), kernel.kept.end());
  }
  return std::ranges::all_of(graph.rows,
                             [&](const auto& row) { return kept.contains(row.first); }) &&
         std::ranges::all_of(graph.blocks, [&](uint32_t value) {
           return !plan.materialized(value) || kept.contains(value);
         });
}

}  // namespace

FusionOptions FusionOptionsFor(const ScheduleOptions& target) {
  return {.costs = target.machine->schedule,
          .private_bytes = target.private_bytes,
          .near_rows = !target.fixed_sums,
          .row_blocks = target.row_blocks,
          .row_bytes = target.row_bytes,
          .row_groups = target.row_groups,
          .row_warp = target.row_warp,
          .one_product = target.product_target.has_value()};
}

FusionOptions WithRows(FusionOptions options, const RecomputedRows& rows) {
  options.rows = rows.rows;
  options.fused = rows.fused;
  options.apart = rows.statistics;
  return options;
}

absl::StatusOr<ChosenRows> ChooseRows(const FrozenGraph& legal, const ScheduleOptions& target,
                                      Budget* budget) {
  const ChosenRows none{{legal, {}, {}, {}, {}}, std::nullopt};
  if (target.private_bytes == 0 || target.product_target) return none;
  for (const RowStatistics statistics : {RowStatistics::kWithResult, RowStatistics::kAlone}) {
    TG_ASSIGN_OR_RETURN(RecomputedRows rows,
                        RecomputeRows(legal, target.machine->schedule, target.private_bytes,
                                      target.row_blocks, statistics, budget));
    if (rows.rows.empty() && rows.fused.empty()) return none;
    const FusionOptions options = WithRows(FusionOptionsFor(target), rows);
    TG_ASSIGN_OR_RETURN(FusionPlan plan, PlanFusion(rows.graph.root(), options, budget));
    if (KeepsRows(plan, rows)) return ChosenRows{std::move(rows), std::move(plan)};
  }
  return none;
}

}  // namespace telegrad
