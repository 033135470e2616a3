// Nothing is compiled for the answer: both forms are scheduled, and the iterations of their kernels
// are counted. The schedule of the whole form is kept for its compilation.
#include "engine/execution/whole_form.h"

#include <algorithm>
#include <vector>

#include "engine/execution/build.h"
#include "engine/execution/unread_parts.h"
#include "engine/ir/content_hash.h"
#include "engine/lowering/kernel_work.h"

namespace telegrad {
namespace {

constexpr int64_t kMostTemporaryBytes = int64_t{64} << 20;
constexpr int64_t kShareOfDevice = 16;  // of its memory, for temporaries
// How much more than the form for the least values: their iterations times this, and a number of
// iterations that costs less than a launch of threads does.
constexpr double kMostTimes = 2, kMostIterations = 1 << 16;

// `slot`: where the values of the variables are; -1: nowhere.
absl::StatusOr<KernelWork> WorkOfAll(const Schedule& schedule, int64_t slot, const Target& target,
                                     Budget* budget) {
  KernelWork work;
  for (const ScheduledKernel& kernel : schedule.kernels) {
    TG_ASSIGN_OR_RETURN(const KernelWork own,
                        WorkOf(kernel.graph, ArgumentOfSlot(kernel, slot), target, budget));
    work.least += own.least;
    work.most += own.most;
  }
  return work;
}

}  // namespace

int64_t ArgumentOfSlot(const ScheduledKernel& kernel, int64_t slot) {
  const auto it = std::ranges::find_if(kernel.arguments, [&](const BufferRef& ref) {
    return ref.kind == BufferRef::Kind::kSlot && ref.index == slot;
  });
  return it != kernel.arguments.end() ? it - kernel.arguments.begin() : -1;
}

absl::StatusOr<WholeForm> DescribeWholeForm(const Digest& hash, const FrozenGraph& graph,
                                            std::span<const VarRange> ranges, const Device& device,
                                            ScheduleCache& schedules, Budget* budget) {
  const ScheduleOptions options = ScheduleOptionsFor(device);
  TG_ASSIGN_OR_RETURN(const GeneralForm form, Generalize(graph.root(), ranges, budget));
  TG_ASSIGN_OR_RETURN(const auto shared, schedules.Get(ContentHash(form.graph.root()),
                                                       form.graph.root(), {}, budget, options));
  if (shared->arena_bytes > std::min(kMostTemporaryBytes, device.memory_limit() / kShareOfDevice)) {
    return WholeForm();
  }
  Schedule whole = *shared;
  LeaveOutUnread(&whole);
  std::vector<VarValue> values;
  for (const VarRange& range : ranges) values.push_back({range.id, range.min});
  TG_ASSIGN_OR_RETURN(const auto least, schedules.Get(hash, graph.root(), values, budget, options));
  TG_ASSIGN_OR_RETURN(const KernelWork work, WorkOfAll(whole, form.slot, device.target(), budget));
  TG_ASSIGN_OR_RETURN(const KernelWork needed, WorkOfAll(*least, -1, device.target(), budget));
  return WholeForm{.serves = work.least <= kMostTimes * needed.most + kMostIterations,
                   .least_share = work.most > 0 ? work.least / work.most : 1};
}

double PartOf(std::span<const VarRange> ranges, std::span<const VarValue> values) {
  double part = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const double all = static_cast<double>(ranges[i].max) - static_cast<double>(ranges[i].min);
    if (all == 0) continue;
    const double above = static_cast<double>(values[i].value) - static_cast<double>(ranges[i].min);
    part = std::max(part, above / all);
  }
  return part;
}

RunCost Scaled(RunCost cost, double share) {
  for (double* part : {&cost.flops, &cost.bytes, &cost.seconds, &cost.launch_seconds}) {
    *part *= share;
  }
  return cost;
}

}  // namespace telegrad
