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
constexpr int64_t kPackedAlign = 256;  // of copies in the temporaries
constexpr size_t kMaxForms = 2;        // beside the one in which nothing is kept

Launch Packs(const PackedSlot& packed, const BoundPart& copy, const BoundPart& slot) {
  Launch launch = Launch::Of(packed.program);
  launch.arguments = {{copy.binding, copy.offset, BufferAccess::kWrite},
                      {slot.binding, slot.offset, BufferAccess::kRead}};
  return launch;
}

BufferAccess AccessOf(const KernelArgument& argument) {
  if (!argument.written) return BufferAccess::kRead;
  return argument.read ? BufferAccess::kReadWrite : BufferAccess::kWrite;
}

void AddKernel(const KernelInfo& kernel, Launch launch, std::vector<PredictedCommand>* commands) {
  launch.name = kernel.name;
  launch.grid.x = kernel.iterations;
  launch.flops = kernel.flops;
  launch.bytes = kernel.bytes;
  AddLaunch(launch, kernel.seconds, kernel.segments, commands);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlannedExecutable>> PlannedExecutable::Create(
    LaunchPlan plan, std::shared_ptr<DeviceRuns> runs) {
  std::shared_ptr<PlannedExecutable> out(new PlannedExecutable(std::move(plan), std::move(runs)));
  TG_RETURN_IF_ERROR(out->Encode());
  return std::shared_ptr<const PlannedExecutable>(std::move(out));
}

absl::Status PlannedExecutable::Predict(KernelInfo* kernel, int64_t* segments) {
  const Rates rates = runs_->device.rates();
  kernel->seconds = PredictedSeconds(kernel->flops, kernel->bytes, rates);
  kernel->segments = SegmentsOf(kernel->seconds, kernel->iterations, rates.iterations);
  if ((*segments += kernel->segments) <= kMaxSegments) return absl::OkStatus();
  return ResourceExhausted("the run would be cut into more than ", kMaxSegments,
                           " segments, which are predicted to take ", cost_.seconds,
                           " s and more; run it in parts");
}

bool PlannedExecutable::IsOutdated(FoundMoves& found) const {
  const uint64_t version = found.version();
  if (seen_.load(std::memory_order_relaxed) == version) return false;
  for (const auto& [key, moves] : plan_.found) {
    const std::optional<FoundList> list = found.Get(key);
    if (list && list->better && list->moves != moves) return true;
  }
  seen_.store(version, std::memory_order_relaxed);
  return false;
}

absl::Status PlannedExecutable::Encode() {
  binding_.assign(plan_.slots.size(), -1);
  for (size_t i = 0; i < plan_.slots.size(); ++i) {
    if (!plan_.slots[i].used || plan_.slots[i].bytes == 0) continue;
    binding_[i] = static_cast<int32_t>(bound_.size());
    bound_.push_back(i);
  }
  const Rates rates = runs_->device.rates();
  int64_t segments = 0;
  for (KernelInfo& kernel : plan_.kernels) {
    TG_RETURN_IF_ERROR(Predict(&kernel, &segments));
    cost_.flops += kernel.flops;
    cost_.bytes += kernel.bytes;
    cost_.seconds += kernel.seconds;
    // A launch of few iterations has not all of the device.
    const double used = static_cast<double>(
        std::clamp<int64_t>(kernel.iterations / kernel.segments, 1, rates.iterations));
    cost_.launch_seconds =
        std::max(cost_.launch_seconds,
                 kernel.seconds / kernel.segments * static_cast<double>(rates.iterations) / used);
    for (const KernelArgument& a : kernel.arguments) {
      if (a.temporary) continue;
      SlotUse& slot = plan_.slots[static_cast<size_t>(a.slot)];
      slot.read |= a.read;
      slot.written |= a.written;
    }
  }
  for (size_t i = 0; i < plan_.packed.size(); ++i) {
    PackedSlot& packed = plan_.packed[i];
    TG_RETURN_IF_ERROR(Predict(&packed.kernel, &segments));
    if (plan_.slots[static_cast<size_t>(packed.slot)].written) continue;
    keeps_.push_back(i);
    std::vector<PredictedCommand> commands;
    AddKernel(packed.kernel, Packs(packed, {0, 0}, {1, 0}), &commands);
    TG_ASSIGN_OR_RETURN(auto slices, EncodeSlices(runs_->device, std::move(commands)));
    packs_.push_back(std::move(slices));
  }
  for (const SlotUse& slot : plan_.slots) {
    (slot.written ? cost_.output_bytes : cost_.input_bytes) += slot.bytes;
  }
  TG_ASSIGN_OR_RETURN(plain_, EncodeForm(Kept(keeps_.size(), false)));
  cost_.temporary_bytes = plain_.temporary_bytes;
  return absl::OkStatus();
}

absl::StatusOr<PlannedExecutable::Form> PlannedExecutable::EncodeForm(const Kept& kept) const {
  Form form;
  // What a kernel packs into the temporaries lies behind those of the plan, over what the kernel
  // before it packed.
  const auto aligned = [](int64_t bytes) { return (bytes + kPackedAlign - 1) & -kPackedAlign; };
  const int64_t base = plan_.packed.empty() ? 0 : aligned(plan_.temporary_bytes);
  std::vector<bool> stays(plan_.packed.size(), false);
  for (size_t i = 0; i < keeps_.size(); ++i) stays[keeps_[i]] = kept[i];
  form.temporary_bytes = plan_.temporary_bytes;
  for (const KernelInfo& kernel : plan_.kernels) {
    int64_t end = base;
    for (const KernelArgument& a : kernel.arguments) {
      if (a.packed >= 0 && !stays[a.packed]) end += aligned(plan_.packed[a.packed].bytes);
    }
    if (end > base) form.temporary_bytes = std::max(form.temporary_bytes, end);
  }
  const auto temporaries = static_cast<int32_t>(bound_.size());
  int32_t next = temporaries + (form.temporary_bytes > 0 ? 1 : 0);
  std::vector<int32_t> copies(plan_.packed.size(), -1);
  for (size_t i = 0; i < keeps_.size(); ++i) {
    if (kept[i]) copies[keeps_[i]] = next++;
  }
  std::vector<PredictedCommand> commands;
  for (size_t k = 0; k < plan_.kernels.size(); ++k) {
    const KernelInfo& kernel = plan_.kernels[k];
    Launch launch = Launch::Of(plan_.programs[k]);
    int64_t at = base;
    for (const KernelArgument& a : kernel.arguments) {
      if (a.packed >= 0 && stays[a.packed]) {
        launch.arguments.push_back({copies[a.packed], 0, BufferAccess::kRead});
      } else if (a.packed >= 0) {
        const PackedSlot& packed = plan_.packed[a.packed];
        AddKernel(packed.kernel, Packs(packed, {temporaries, at}, {binding_[packed.slot], 0}),
                  &commands);
        launch.arguments.push_back({temporaries, at, BufferAccess::kRead});
        at += aligned(packed.bytes);
      } else if (a.temporary) {
        launch.arguments.push_back({temporaries, a.offset, AccessOf(a)});
      } else {
        launch.arguments.push_back({binding_[static_cast<size_t>(a.slot)], 0, AccessOf(a)});
      }
    }
    plan_.parts.Mark(k, &launch);
    AddKernel(kernel, std::move(launch), &commands);
  }
  form.segments = commands.size();
  TG_ASSIGN_OR_RETURN(form.slices, EncodeSlices(runs_->device, std::move(commands)));
  return form;
}

absl::StatusOr<PlannedExecutable::Form> PlannedExecutable::FormOf(const Kept& kept) const {
  if (std::ranges::find(kept, true) == kept.end()) return plain_;
  const MutexLock lock(mutex_);
  const auto known = std::ranges::find(forms_, kept, &std::pair<Kept, Form>::first);
  if (known != forms_.end()) return known->second;
  TG_ASSIGN_OR_RETURN(Form form, EncodeForm(kept));
  if (forms_.size() >= kMaxForms) forms_.erase(forms_.begin());
  forms_.emplace_back(kept, form);
  return form;
}

int64_t PlannedExecutable::kept_bytes() const {
  size_t arguments = 0;
  for (const KernelInfo& kernel : plan_.kernels) {
    arguments += kernel.arguments.size() * static_cast<size_t>(kernel.segments);
  }
  const int64_t form = static_cast<int64_t>(plain_.segments * sizeof(Command) +
                                            arguments * sizeof(Launch::Argument));
  return Executable::kept_bytes() + plan_.code_bytes +
         form * static_cast<int64_t>(keeps_.empty() ? 1 : 1 + kMaxForms);
}

std::vector<std::optional<PackedCopy>> PlannedExecutable::Copies(
    std::span<const BufferView> bindings, std::span<const TimelinePoint> waits,
    RunQueues& queues) const {
  if (keeps_.empty()) return {};
  std::vector<PackedCopies::Wanted> wanted;
  for (const size_t i : keeps_) {
    const PackedSlot& packed = plan_.packed[i];
    wanted.push_back(
        {bindings[static_cast<size_t>(packed.slot)], packed.kernel.name, packed.bytes});
  }
  const auto make = [&](size_t i, const BufferView& memory) {
    return queues.Submit(runs_->device, QueueKind::kCompute,
                         {.slices = packs_[i],
                          .bindings = {memory, wanted[i].weight},
                          .waits = {waits.begin(), waits.end()}});
  };
  return runs_->temporaries->copies().Get(wanted, make);
}

std::vector<uint64_t> PlannedExecutable::ScalarsFor(std::span<const VarValue> values) const {
  if (plan_.parts.kernels.empty()) return {};
  std::vector<int64_t> iterations;
  for (const KernelInfo& kernel : plan_.kernels) iterations.push_back(kernel.iterations);
  return plan_.parts.Scalars(values, iterations);
}

absl::StatusOr<TimelinePoint> PlannedExecutable::SubmitPart(
    std::vector<uint64_t> scalars, std::span<const BufferView> bindings,
    std::span<const TimelinePoint> waits, std::shared_ptr<RunTrace> trace,
    std::shared_ptr<const Cancellation> cancellation, RunQueues& queues) const {
  TG_RETURN_IF_ERROR(
      CheckBindings(plan_.slots, bindings, BindingAlignment(runs_->device.target())));
  const std::vector<std::optional<PackedCopy>> copies = Copies(bindings, waits, queues);
  Kept kept;
  for (const auto& copy : copies) kept.push_back(copy.has_value());
  TG_ASSIGN_OR_RETURN(const Form form, FormOf(kept));
  std::vector<BufferView> bound;
  bound.reserve(bound_.size() + 1 + keeps_.size());
  for (size_t slot : bound_) bound.push_back(bindings[slot]);
  if (form.temporary_bytes > 0) {
    Temporaries& all = *runs_->temporaries;
    TG_ASSIGN_OR_RETURN(BufferView temporaries,
                        plan_.zeroed_temporaries
                            ? all.Zeroed(form.temporary_bytes)
                            : all.Shared(form.temporary_bytes, queues.run_class()));
    bound.push_back(std::move(temporaries));
  }
  std::vector<TimelinePoint> after(waits.begin(), waits.end());
  for (const auto& copy : copies) {
    if (!copy) continue;
    bound.push_back(copy->memory);
    after.push_back(copy->made);
  }
  TG_ASSIGN_OR_RETURN(
      TimelinePoint point,
      queues.Submit(runs_->device, QueueKind::kCompute,
                    {form.slices, std::move(bound), std::move(after), std::move(trace),
                     std::move(cancellation), std::move(scalars)}));
  RunCounters& counters = *runs_->counters;
  counters.submissions.fetch_add(1, std::memory_order_relaxed);
  counters.launches.fetch_add(plan_.kernels.size(), std::memory_order_relaxed);
  counters.segments.fetch_add(form.segments, std::memory_order_relaxed);
  return point;
}

}  // namespace telegrad
