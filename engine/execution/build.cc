#include "engine/execution/build.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status.h"
#include "engine/execution/clock.h"
#include "engine/execution/slot_uses.h"
#include "engine/execution/written_first.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

using Kernels = std::vector<std::shared_ptr<const Kernel>>;

// Compiles the kernels of a schedule, several at a time.
absl::StatusOr<Kernels> CompileKernels(const Schedule& schedule, Device& device, KernelCache& cache,
                                       Budget* all) {
  const size_t n = schedule.kernels.size();
  Kernels kernels(n);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status status = absl::OkStatus();
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) {
      Budget budget(all);
      auto kernel = cache.Get(schedule.kernels[i].graph, device, &budget);
      const std::lock_guard lock(mutex);
      if (!kernel.ok()) {
        if (status.ok()) status = kernel.status();
        next = n;
      } else {
        kernels[i] = *std::move(kernel);
      }
    }
  };
  const size_t helpers = std::min<size_t>(n, std::max(1u, std::thread::hardware_concurrency())) - 1;
  std::vector<std::thread> threads;
  for (size_t i = 0; n > 0 && i < helpers; ++i) {
    threads.emplace_back([&] {
      work();
      all->Worked(ThreadCpuNs());
    });
  }
  work();
  for (std::thread& t : threads) t.join();
  TG_RETURN_IF_ERROR(status);
  return kernels;
}

KernelInfo Describe(const Kernel& kernel, const ScheduledKernel& scheduled,
                    const Schedule& schedule) {
  KernelInfo info;
  info.name = kernel.name;
  info.reasons = scheduled.reasons;
  info.flops = kernel.flops;
  info.bytes = kernel.bytes;
  info.iterations = kernel.iterations;
  for (size_t a = 0; a < kernel.arguments.size(); ++a) {
    const Program::Argument& use = kernel.arguments[a];
    const BufferRef ref = scheduled.arguments[a];
    KernelArgument argument;
    argument.temporary = ref.kind == BufferRef::Kind::kTemporary;
    if (argument.temporary) {
      argument.offset = schedule.temporaries[static_cast<size_t>(ref.index)].offset;
    } else {
      argument.slot = ref.index;
    }
    argument.bytes = BytesOf(use.dtype, use.elements);
    argument.read = use.read;
    argument.written = use.written;
    info.arguments.push_back(argument);
  }
  return info;
}

}  // namespace

absl::StatusOr<Built> Build(const Digest& hash, const FrozenGraph& graph,
                            std::span<const VarValue> variables, std::shared_ptr<DeviceRuns> runs,
                            ScheduleCache& schedules, KernelCache& cache, Budget* budget) {
  Built out;
  const Stopwatch scheduling;
  TG_ASSIGN_OR_RETURN(const std::shared_ptr<const Schedule> shared,
                      schedules.Get(hash, graph.root(), variables, budget));
  const Schedule& schedule = *shared;
  out.schedule_ns = scheduling.ns();
  Device& device = runs->device;
  if (schedule.arena_bytes > device.memory_limit()) {
    return ResourceExhausted("the graph's temporaries need ", schedule.arena_bytes,
                             " bytes, over the device's limit of ", device.memory_limit());
  }
  TG_ASSIGN_OR_RETURN(const Kernels kernels, CompileKernels(schedule, device, cache, budget));
  LaunchPlan plan;
  plan.slots = CollectSlots(graph.root());
  plan.temporary_bytes = schedule.arena_bytes;
  plan.zeroed_temporaries = !WritesTemporariesFirst(schedule);
  for (size_t k = 0; k < kernels.size(); ++k) {
    plan.kernels.push_back(Describe(*kernels[k], schedule.kernels[k], schedule));
    plan.programs.push_back(kernels[k]->program);
    plan.code_bytes += kernels[k]->code_bytes;
  }
  TG_ASSIGN_OR_RETURN(out.executable, PlannedExecutable::Create(std::move(plan), std::move(runs)));
  return out;
}

}  // namespace telegrad
