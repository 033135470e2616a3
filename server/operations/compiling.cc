// Looks graphs up by hash in the tenant's store, and asks its engine for the executable for the
// devices of a placement.
#include "server/operations/compiling.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<const StoredGraph>> FindGraph(Tenant& tenant,
                                                             std::string_view hash) {
  Digest digest;
  if (!Digest::FromBytes(hash, &digest)) {
    return InvalidArgument("expected a graph's hash of 32 bytes, got ", hash.size());
  }
  auto graph = tenant.graphs.Find(digest);
  if (graph == nullptr) return NotFound("unknown graph ", digest.Hex(), "; put it first");
  return graph;
}

absl::StatusOr<ExecutableCache::Result> Compile(Turn& turn, const StoredGraph& graph,
                                                const Placement& placement,
                                                std::span<const VarValue> variables) {
  Tenant& tenant = turn.tenant();
  Budget budget(turn.env().limits.job);
  budget.SetShare(tenant.share);
  TG_ASSIGN_OR_RETURN(const Turn::Job job, Turn::Job::Begin(turn, &budget));
  OperationTrace* const trace = turn.trace();
  const int64_t begun = trace == nullptr ? 0 : trace->Now();
  auto result =
      tenant.engine->Get(graph.hash, graph.graph, placement.devices(), &budget, variables);
  tenant.compile_time->Correct(0, budget.worked_ns());
  if (trace == nullptr) return result;
  if (result.ok() && !result->lowered.empty()) {
    trace->Add("lower", result->lowered.begin_ns, result->lowered.end_ns);
  }
  trace->Add("compile", begun, trace->Now());
  return result;
}

absl::StatusOr<ExecutableCache::Result> CompileAhead(Turn& turn, const StoredGraph& graph,
                                                     std::span<const std::string> names,
                                                     std::span<const VarValue> variables) {
  Placement placement;
  TG_RETURN_IF_ERROR(placement.Name(turn, graph, names));
  TG_RETURN_IF_ERROR(placement.Default(turn, graph));
  return Compile(turn, graph, placement, variables);
}

}  // namespace telegrad
