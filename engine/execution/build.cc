#include "engine/execution/build.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "engine/execution/clock.h"
#include "engine/execution/slot_uses.h"
#include "engine/execution/unread_parts.h"
#include "engine/execution/whole_form.h"
#include "engine/execution/written_first.h"
#include "engine/lowering/kernel_work.h"
#include "engine/lowering/passes.h"
#include "engine/lowering/run_groups.h"
#include "engine/schedule/schedule.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

using Kernels = std::vector<std::shared_ptr<const Kernel>>;

// A run that packs for itself needs memory for the largest copy of a kernel: where that would be
// much of the device's, the kernel reads the weight as it lies.
constexpr int64_t kPackedShare = 16;

std::vector<int32_t> PackableWeights(const ScheduledKernel& scheduled, const Device& device) {
  std::vector<int32_t> weights;
  if (scheduled.weights.empty()) return weights;
  const std::vector<Program::Argument> arguments = KernelArguments(scheduled.graph.root());
  for (const int32_t w : scheduled.weights) {
    if (static_cast<size_t>(w) >= arguments.size()) continue;
    const Program::Argument& a = arguments[static_cast<size_t>(w)];
    if (BytesOf(a.dtype, a.elements) <= device.memory_limit() / kPackedShare) weights.push_back(w);
  }
  return weights;
}

// Those that are stored past the caches for that: kernels that differ in others are one.
std::vector<int32_t> StreamedResults(const ScheduledKernel& scheduled, const Target& target) {
  std::vector<int32_t> results;
  if (scheduled.results.empty() || target.stream_bytes == 0) return results;
  const std::vector<Program::Argument> arguments = KernelArguments(scheduled.graph.root());
  for (const int32_t slot : scheduled.results) {
    const Program::Argument& a = arguments[static_cast<size_t>(slot)];
    const int64_t bytes = BytesOf(a.dtype, a.elements);
    if (bytes < CostsOf(target).thread.result_bytes || bytes >= target.stream_bytes) continue;
    results.push_back(slot);
  }
  return results;
}

// Tells whoever shows the job's progress of its kernels; on an error, too, all of them end.
class CountedKernels {
 public:
  CountedKernels(WorkProgress* progress, size_t kernels)
      : progress_(progress), left_(static_cast<int64_t>(kernels)) {
    if (progress_ != nullptr) progress_->Begin(left_);
  }
  CountedKernels(const CountedKernels&) = delete;
  CountedKernels& operator=(const CountedKernels&) = delete;
  ~CountedKernels() { Done(left_); }
  // By one thread at a time.
  void Done(int64_t kernels) {
    if (progress_ != nullptr) progress_->Done(kernels);
    left_ -= kernels;
  }

 private:
  WorkProgress* const progress_;
  int64_t left_;
};

// Compiles the kernels of a schedule, several at a time.
absl::StatusOr<Kernels> CompileKernels(const Schedule& schedule, Device& device, KernelCache& cache,
                                       Budget* all, LoweringTime* lowered) {
  const size_t n = schedule.kernels.size();
  Kernels kernels(n);
  CountedKernels counted(all->progress(), n);
  std::atomic<size_t> next{0};
  struct {
    Mutex mutex;  // of the kernels and of `lowered`, too
    absl::Status status TG_GUARDED_BY(mutex);
  } first;  // failure
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) {
      Budget budget(all);
      LoweringTime own;
      const ScheduledKernel& scheduled = schedule.kernels[i];
      const std::vector<int32_t> weights = PackableWeights(scheduled, device);
      const std::vector<int32_t> results = StreamedResults(scheduled, device.target());
      auto kernel = cache.Get(scheduled.graph, device, &budget, {weights, results}, &own);
      const MutexLock lock(first.mutex);
      lowered->Cover(own);
      if (!kernel.ok()) {
        if (first.status.ok()) first.status = kernel.status();
        next = n;
      } else {
        kernels[i] = *std::move(kernel);
        counted.Done(1);
      }
    }
  };
  const size_t helpers = std::min(n, static_cast<size_t>(AvailableProcessors())) - 1;
  std::vector<std::thread> threads;
  for (size_t i = 0; n > 0 && i < helpers; ++i) {
    auto thread = StartThread([&] {
      work();
      all->Worked(ThreadCpuNs());
    });
    if (!thread.ok()) break;  // those that are there do all of it
    threads.push_back(*std::move(thread));
  }
  work();
  for (std::thread& t : threads) t.join();
  const MutexLock lock(first.mutex);
  TG_RETURN_IF_ERROR(first.status);
  return kernels;
}

KernelInfo Describe(const Kernel& kernel) {
  KernelInfo info;
  info.name = kernel.name;
  info.flops = kernel.flops;
  info.bytes = kernel.bytes;
  info.iterations = kernel.iterations;
  info.moves = kernel.moves;
  info.searched = kernel.found.has_value();
  info.heat = kernel.heat;
  for (const Program::Argument& use : kernel.arguments) {
    info.arguments.push_back(
        {.bytes = BytesOf(use.dtype, use.elements), .read = use.read, .written = use.written});
  }
  return info;
}

// Adds the kernel, and what packs its weights, to the plan. Kernels that read a slot in the same
// order share the copy.
void AddKernel(const Kernel& kernel, const ScheduledKernel& scheduled, const Schedule& schedule,
               LaunchPlan* plan) {
  KernelInfo info = Describe(kernel);
  info.reasons = scheduled.reasons;
  for (size_t a = 0; a < scheduled.arguments.size(); ++a) {
    const BufferRef ref = scheduled.arguments[a];
    KernelArgument& argument = info.arguments[a];
    argument.temporary = ref.kind == BufferRef::Kind::kTemporary;
    if (argument.temporary) {
      argument.offset = schedule.temporaries[static_cast<size_t>(ref.index)].offset + ref.offset;
    } else {
      argument.slot = ref.index;
    }
  }
  for (const Kernel::Packing& packing : kernel.packings) {
    KernelArgument& copy = info.arguments[static_cast<size_t>(packing.copy)];
    copy.slot = info.arguments[static_cast<size_t>(packing.source)].slot;
    const auto same = std::ranges::find_if(plan->packed, [&](const PackedSlot& p) {
      return p.slot == copy.slot && p.program == packing.kernel->program;
    });
    copy.packed = static_cast<int32_t>(same - plan->packed.begin());
    if (same != plan->packed.end()) continue;
    plan->packed.push_back(
        {copy.slot, copy.bytes, Describe(*packing.kernel), packing.kernel->program});
    plan->code_bytes += packing.kernel->code_bytes;
  }
  plan->kernels.push_back(std::move(info));
  if (!kernel.found_key.empty()) plan->found.emplace_back(kernel.found_key, kernel.found);
  plan->programs.push_back(kernel.program);
  plan->code_bytes += kernel.code_bytes;
}

// The kernels that read the values of variables, which are in `slot`.
absl::StatusOr<RunParts> PartsOf(const Schedule& schedule, const Kernels& kernels, size_t slot,
                                 const Target& target, Budget* budget) {
  RunParts parts;
  for (size_t k = 0; k < kernels.size(); ++k) {
    const ScheduledKernel& scheduled = schedule.kernels[k];
    const int64_t values = ArgumentOfSlot(scheduled, static_cast<int64_t>(slot));
    if (values < 0) continue;
    TG_ASSIGN_OR_RETURN(const KernelWork work, WorkOf(scheduled.graph, values, target, budget));
    VaryingKernel& own = parts.kernels.emplace_back();
    own.kernel = k;
    own.least_share = work.most > 0 ? work.least / work.most : 1;
    if (!kernels[k]->groups) continue;
    const bool given = std::ranges::all_of(ArgumentsOf(*kernels[k]->groups),
                                           [&](int32_t argument) { return argument == values; });
    if (given) own.groups = kernels[k]->groups;
  }
  return parts;
}

}  // namespace

ScheduleOptions ScheduleOptionsFor(const Device& device) {
  ScheduleOptions options = ScheduleOptions::For(device.target());
  options.transformed_bytes =
      std::min(options.transformed_bytes, device.memory_limit() / kPackedShare);
  return options;
}

absl::StatusOr<Built> Build(const Digest& hash, const FrozenGraph& graph,
                            std::span<const VarValue> variables, std::shared_ptr<DeviceRuns> runs,
                            ScheduleCache& schedules, KernelCache& cache, Budget* budget,
                            std::span<const VarRange> values) {
  Built out;
  const Stopwatch scheduling;
  TG_ASSIGN_OR_RETURN(
      const std::shared_ptr<const Schedule> shared,
      schedules.Get(hash, graph.root(), variables, budget, ScheduleOptionsFor(runs->device)));
  Schedule schedule = *shared;
  LeaveOutUnread(&schedule);
  out.schedule_ns = scheduling.ns();
  Device& device = runs->device;
  if (schedule.arena_bytes > device.memory_limit()) {
    return ResourceExhausted("the graph's temporaries need ", schedule.arena_bytes,
                             " bytes, over the device's limit of ", device.memory_limit());
  }
  TG_ASSIGN_OR_RETURN(const Kernels kernels,
                      CompileKernels(schedule, device, cache, budget, &out.lowered));
  LaunchPlan plan;
  plan.slots = CollectSlots(graph.root());
  plan.temporary_bytes = schedule.arena_bytes;
  plan.zeroed_temporaries = !WritesTemporariesFirst(*shared);
  for (size_t k = 0; k < kernels.size(); ++k) {
    AddKernel(*kernels[k], schedule.kernels[k], schedule, &plan);
  }
  if (!values.empty()) {
    TG_ASSIGN_OR_RETURN(plan.parts,
                        PartsOf(schedule, kernels, plan.slots.size() - 1, device.target(), budget));
    plan.parts.variables.assign(values.begin(), values.end());
  }
  TG_ASSIGN_OR_RETURN(out.executable, PlannedExecutable::Create(std::move(plan), std::move(runs)));
  return out;
}

}  // namespace telegrad
