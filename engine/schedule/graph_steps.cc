#include "engine/schedule/graph_steps.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/status.h"
#include "engine/schedule/byte_products.h"
#include "engine/schedule/channels_last.h"
#include "engine/schedule/choose_rows.h"
#include "engine/schedule/collapse.h"
#include "engine/schedule/exchange_sums.h"
#include "engine/schedule/fixed_sums.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/mask_scores.h"
#include "engine/schedule/scaled_sums.h"
#include "engine/schedule/score_form.h"
#include "engine/schedule/sign_masks.h"
#include "engine/schedule/split_reduce.h"
#include "engine/schedule/store_shape.h"
#include "engine/schedule/window_sums.h"

namespace telegrad {
namespace {

using Result = absl::StatusOr<FrozenGraph>;
using Options = ScheduleOptions;

Result MaskWhereRowsStay(FrozenGraph graph, const Options& options, Budget* budget);

constexpr auto kAlways = [](const Options&) { return true; };

constexpr GraphStep kSteps[] = {
    {"collapse", "turns masked reductions into iota, gather and scatter", kAlways,
     [](FrozenGraph graph, const Options&, Budget* budget) -> Result {
       return CollapseReductions(graph.root(), budget);
     }},
    {"sign-masks", "makes 0 < x a comparison of relu(x) where there is one", kAlways,
     [](FrozenGraph graph, const Options&, Budget* budget) -> Result {
       return MasksOfResults(std::move(graph), budget);
     }},
    {"mask-scores",
     "masks scores in place of reductions, where kernels then keep all of their rows",
     [](const Options& options) { return options.row_bytes > 0; }, MaskWhereRowsStay},
    {"scores", "gives what is around the scores of an attention one form", kAlways,
     [](FrozenGraph graph, const Options&, Budget* budget) -> Result {
       return SimplifyScores(std::move(graph), budget);
     }},
    {"window-sums", "makes the gradients of pools views, and those of convolutions one sum",
     kAlways,
     [](FrozenGraph graph, const Options& options, Budget* budget) -> Result {
       return SimplifyWindowSums(std::move(graph), options.fixed_sums, budget);
     }},
    {"scale-sums", "takes the scales of dequantized values out of sums, for products of bytes",
     [](const Options& options) { return options.dots && !options.fixed_sums; },
     [](FrozenGraph graph, const Options&, Budget* budget) -> Result {
       return ScaleSums(std::move(graph), budget);
     }},
    {"byte-products", "adds up products of small integers in f32", kAlways,
     [](FrozenGraph graph, const Options& options, Budget* budget) -> Result {
       return AddSmallProductsInFloat(std::move(graph), options.dots, budget);
     }},
    {"round-products", "rounds products that others share, where the order of sums is fixed",
     [](const Options& options) { return options.fixed_sums; },
     [](FrozenGraph graph, const Options&, Budget* budget) -> Result {
       return RoundSharedProducts(std::move(graph), budget);
     }},
    {"exchange-sums", "computes sums of products of sums in the order that takes less",
     [](const Options& options) { return !options.fixed_sums; },
     [](FrozenGraph graph, const Options&, Budget* budget) -> Result {
       return ExchangeSums(std::move(graph), budget);
     }},
    {"split-reductions", "makes large reductions into few results two", kAlways,
     [](FrozenGraph graph, const Options& options, Budget* budget) -> Result {
       return SplitReductions(std::move(graph), options.machine->schedule.split, options.fixed_sums,
                              budget);
     }},
    {"channels-last", "stores images with their channels last, for products in tiles",
     [](const Options& options) { return options.product_target.has_value(); },
     [](FrozenGraph graph, const Options& options, Budget* budget) -> Result {
       return StoreChannelsLast(std::move(graph), *options.product_target, budget);
     }},
    {"store-shape", "stores sums of products in their own shape",
     [](const Options& options) { return options.private_bytes > 0 || options.row_bytes > 0; },
     [](FrozenGraph graph, const Options& options, Budget* budget) -> Result {
       return StoreInOwnShape(std::move(graph), options.private_bytes == 0, budget);
     }},
};

// Whether they stay is known only of the plan, so the steps behind this one are tried.
Result MaskWhereRowsStay(FrozenGraph graph, const Options& options, Budget* budget) {
  TG_ASSIGN_OR_RETURN(FrozenGraph masked, MaskScores(graph, budget));
  if (masked.graph == graph.graph) return graph;
  const auto* const self = std::ranges::find(kSteps, &MaskWhereRowsStay, &GraphStep::run);
  TG_ASSIGN_OR_RETURN(
      const FrozenGraph tried,
      RunGraphSteps(masked, std::span(self + 1, std::end(kSteps)), options, budget));
  TG_ASSIGN_OR_RETURN(const FusionPlan plan,
                      PlanFusion(tried.root(), FusionOptionsFor(options), budget));
  return KeepsMaskedRows(*tried.graph, plan) ? masked : graph;
}

}  // namespace

static_assert(std::size(kSteps) <= kMostGraphSteps,
              "kMostGraphSteps of graph_steps.h is too small");
std::span<const GraphStep> GraphSteps() { return kSteps; }

absl::StatusOr<FrozenGraph> RunGraphSteps(FrozenGraph legal, std::span<const GraphStep> steps,
                                          const ScheduleOptions& options, Budget* budget) {
  for (const GraphStep& step : steps) {
    if (!step.applies(options)) continue;
    TG_ASSIGN_OR_RETURN(legal, step.run(std::move(legal), options, budget));
  }
  return legal;
}

}  // namespace telegrad
