#include "engine/explain/explain.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "engine/lowering/lower.h"

namespace telegrad {
namespace {

// The ranges that ENDs close, outermost first, and those that are reduced; each once.
void FindRanges(UOp kernel, ExplainedKernel* out) {
  absl::flat_hash_set<uint32_t> closed;
  const std::vector<uint32_t> order = PostOrder(kernel);
  const auto size = [](UOp range) { return range.src(0).vmax(); };
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const UOp u = kernel.graph()->at(*it);
    if (!u.is(Op::kEnd)) continue;
    for (int i = 1; i < u.num_src(); ++i) {
      if (closed.insert(u.src(i).id()).second) out->loops.push_back(size(u.src(i)));
    }
  }
  for (uint32_t id : order) {
    const UOp u = kernel.graph()->at(id);
    if (u.is(Op::kRange) && !closed.contains(id)) out->reduces.push_back(size(u));
  }
}

void DescribeMemory(const Schedule& schedule, Explanation* out) {
  std::map<int32_t, int64_t> slots;
  for (const ExplainedKernel& kernel : out->kernels) {
    for (size_t a = 0; a < kernel.buffers.size(); ++a) {
      const BufferRef& ref = kernel.buffers[a];
      if (ref.kind == BufferRef::Kind::kTemporary) continue;
      slots[ref.index] = BytesOf(kernel.arguments[a].dtype, kernel.arguments[a].elements);
    }
  }
  for (const auto& [slot, bytes] : slots) out->slot_bytes += bytes;
  out->temporaries = schedule.temporaries;
  out->arena_bytes = schedule.arena_bytes;
  std::vector<int64_t> change(out->kernels.size() + 1, 0);
  for (const Temporary& t : schedule.temporaries) {
    out->unshared_bytes += t.bytes;
    change[t.first] += t.bytes;
    change[t.last + 1] -= t.bytes;
  }
  int64_t alive = 0;
  for (const int64_t bytes : change) {
    alive += bytes;
    out->peak_bytes = std::max(out->peak_bytes, alive);
  }
}

}  // namespace

absl::StatusOr<Explanation> ExplainGraph(UOp sink, std::span<const VarValue> variables,
                                         const Target& target, Budget* budget,
                                         const std::function<void(int64_t, int64_t)>& lowered) {
  TG_ASSIGN_OR_RETURN(const Schedule schedule,
                      ScheduleGraph(sink, variables, budget, ScheduleOptions::For(target)));
  Explanation out;
  std::map<std::string, size_t> seen;  // by name, the first kernel of that content
  for (const ScheduledKernel& scheduled : schedule.kernels) {
    if (lowered) lowered(std::ssize(out.kernels), std::ssize(schedule.kernels));
    ExplainedKernel kernel;
    kernel.name = "k_" + ContentHash(scheduled.graph.root()).Hex().substr(0, 16);
    const auto [it, added] = seen.emplace(kernel.name, out.kernels.size());
    if (added) {
      Budget own(budget);
      LoweringReport report;
      TG_ASSIGN_OR_RETURN(const Program program,
                          Lower(scheduled.graph, target, kernel.name, &own, &report,
                                {.weights = scheduled.weights, .results = scheduled.results}));
      FindRanges(scheduled.graph.root(), &kernel);
      kernel.arguments = program.arguments;
      // Copies of weights are no slots of the graph: the kernel reads the weight through them.
      for (const Program::Packing& packing : program.packings) {
        kernel.arguments[static_cast<size_t>(packing.source)].read = true;
      }
      kernel.arguments.resize(scheduled.arguments.size());
      kernel.flops = program.flops;
      kernel.bytes = program.bytes;
      kernel.moves = program.moves;
      kernel.refused = std::move(report.refused);
    } else {
      kernel = out.kernels[it->second];
    }
    kernel.buffers = scheduled.arguments;
    kernel.reasons = scheduled.reasons;
    out.flops += kernel.flops;
    out.bytes += kernel.bytes;
    out.kernels.push_back(std::move(kernel));
  }
  out.different_kernels = static_cast<int64_t>(seen.size());
  DescribeMemory(schedule, &out);
  return out;
}

}  // namespace telegrad
