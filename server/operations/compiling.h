// What the operations on graphs (Put, Run, Import) share: finding a graph of the tenant, and
// compiling it.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/execution/executable_cache.h"
#include "engine/types/var_value.h"
#include "server/operations/placement.h"
#include "server/session/turn.h"
#include "server/tenant/graph_store.h"

namespace telegrad {

// NOT_FOUND unless this tenant has put it.
absl::StatusOr<std::shared_ptr<const StoredGraph>> FindGraph(Tenant& tenant, std::string_view hash);

// Schedules and compiles the graph where that has not been done. On a thread that compiles.
absl::StatusOr<ExecutableCache::Result> Compile(Turn& turn, const StoredGraph& graph,
                                                const Placement& placement,
                                                std::span<const VarValue> variables);

// The same for the server's own devices, or those that are named.
absl::StatusOr<ExecutableCache::Result> CompileAhead(Turn& turn, const StoredGraph& graph,
                                                     std::span<const std::string> names,
                                                     std::span<const VarValue> variables = {});

}  // namespace telegrad
