#include "engine/execution/planned_executable.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/execution/bindings.h"
#include "engine/execution/prediction.h"

namespace telegrad {
namespace {

// Limit of the segments of one run. Each is a command with its launch arguments.
constexpr int64_t kMaxSegments = 1 << 17;

}  // namespace

absl::StatusOr<std::shared_ptr<const PlannedExecutable>> PlannedExecutable::Create(
    LaunchPlan plan, std::shared_ptr<DeviceRuns> runs) {
  std::shared_ptr<PlannedExecutable> out(new PlannedExecutable(std::move(plan), std::move(runs)));
  TG_RETURN_IF_ERROR(out->Encode());
  return std::shared_ptr<const PlannedExecutable>(std::move(out));
}

absl::Status PlannedExecutable::Encode() {
  std::vector<int32_t> binding(plan_.slots.size(), -1);
  for (size_t i = 0; i < plan_.slots.size(); ++i) {
    if (!plan_.slots[i].used || plan_.slots[i].bytes == 0) continue;
    binding[i] = static_cast<int32_t>(bound_.size());
    bound_.push_back(i);
  }
  const auto temporaries = static_cast<int32_t>(bound_.size());
  const Rates rates = runs_->device.rates();
  std::vector<PredictedCommand> commands;
  int64_t segments = 0;
  for (size_t k = 0; k < plan_.kernels.size(); ++k) {
    KernelInfo& kernel = plan_.kernels[k];
    kernel.seconds = PredictedSeconds(kernel.flops, kernel.bytes, rates);
    kernel.segments = SegmentsOf(kernel.seconds, kernel.iterations);
    if ((segments += kernel.segments) > kMaxSegments) {
      return ResourceExhausted("the run would be cut into more than ", kMaxSegments,
                               " segments, which are predicted to take ", cost_.seconds,
                               " s and more; run it in parts");
    }
    cost_.flops += kernel.flops;
    cost_.bytes += kernel.bytes;
    cost_.seconds += kernel.seconds;
    // A launch of few iterations has not all of the device.
    const double used = static_cast<double>(
        std::clamp<int64_t>(kernel.iterations / kernel.segments, 1, rates.iterations));
    cost_.launch_seconds =
        std::max(cost_.launch_seconds,
                 kernel.seconds / kernel.segments * static_cast<double>(rates.iterations) / used);
    Launch launch;
    launch.program = plan_.programs[k];
    launch.name = kernel.name;
    for (const KernelArgument& a : kernel.arguments) {
      if (a.temporary) {
        launch.arguments.push_back({temporaries, a.offset});
        continue;
      }
      launch.arguments.push_back({binding[static_cast<size_t>(a.slot)], 0});
      SlotUse& slot = plan_.slots[static_cast<size_t>(a.slot)];
      slot.read |= a.read;
      slot.written |= a.written;
    }
    // Segments in order, as equal as whole iterations allow.
    for (int64_t s = 0; s < kernel.segments; ++s) {
      const auto cut = [&](int64_t i) {
        return kernel.iterations / kernel.segments * i +
               std::min(i, kernel.iterations % kernel.segments);
      };
      Command command;
      command.launch = launch;
      command.launch.begin = cut(s);
      command.launch.iterations = cut(s + 1) - cut(s);
      command.launch.flops = kernel.flops / kernel.segments;
      command.launch.bytes = kernel.bytes / kernel.segments;
      commands.push_back({std::move(command), kernel.seconds / kernel.segments});
    }
  }
  for (const SlotUse& slot : plan_.slots) {
    (slot.written ? cost_.output_bytes : cost_.input_bytes) += slot.bytes;
  }
  cost_.temporary_bytes = plan_.temporary_bytes;
  segments_ = commands.size();
  TG_ASSIGN_OR_RETURN(slices_, EncodeSlices(runs_->device, std::move(commands)));
  return absl::OkStatus();
}

int64_t PlannedExecutable::kept_bytes() const {
  size_t arguments = 0;
  for (const KernelInfo& kernel : plan_.kernels) {
    arguments += kernel.arguments.size() * static_cast<size_t>(kernel.segments);
  }
  return Executable::kept_bytes() + plan_.code_bytes +
         static_cast<int64_t>(segments_ * sizeof(Command) + arguments * sizeof(Launch::Argument));
}

absl::StatusOr<TimelinePoint> PlannedExecutable::Run(
    std::span<const BufferView> bindings, std::span<const TimelinePoint> waits,
    std::shared_ptr<RunTrace> trace, std::shared_ptr<const Cancellation> cancellation,
    RunQueues& queues) const {
  TG_RETURN_IF_ERROR(
      CheckBindings(plan_.slots, bindings, BindingAlignment(runs_->device.target())));
  std::vector<BufferView> bound;
  bound.reserve(bound_.size() + 1);
  for (size_t slot : bound_) bound.push_back(bindings[slot]);
  if (plan_.temporary_bytes > 0) {
    Temporaries& all = *runs_->temporaries;
    TG_ASSIGN_OR_RETURN(BufferView temporaries,
                        plan_.zeroed_temporaries
                            ? all.Zeroed(plan_.temporary_bytes)
                            : all.Shared(plan_.temporary_bytes, queues.run_class()));
    bound.push_back(std::move(temporaries));
  }
  TG_ASSIGN_OR_RETURN(TimelinePoint point, queues.Submit(runs_->device, QueueKind::kCompute,
                                                         {slices_,
                                                          std::move(bound),
                                                          {waits.begin(), waits.end()},
                                                          std::move(trace),
                                                          std::move(cancellation)}));
  RunCounters& counters = *runs_->counters;
  counters.submissions.fetch_add(1, std::memory_order_relaxed);
  counters.launches.fetch_add(plan_.kernels.size(), std::memory_order_relaxed);
  counters.segments.fetch_add(segments_, std::memory_order_relaxed);
  return point;
}

}  // namespace telegrad
