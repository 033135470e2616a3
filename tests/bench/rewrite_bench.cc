// What rule misses cost: real kernels at the fixed point of the rule tables are swept again, so
// that each node meets all rows and none matches. sweep_ns_per_node is the whole sweep: the walk,
// finding each rebuilt node, the memo, the dispatch and the tries; miss_ns_per_node is what it
// costs more than a sweep without rules.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/ir/text.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

constexpr const RuleTable* kTables[] = {&kDecompositions, &kAlgebra, &kDivMod};

// The kernels of the golden graphs, simplified until nothing changes.
std::vector<UOp> Kernels(Graph* graph, Budget* budget) {
  std::vector<UOp> roots;
  for (const auto& entry : std::filesystem::directory_iterator(GOLDEN_DIR)) {
    if (entry.path().extension() != ".uop") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    Graph tensors;
    const auto root = Parse(text.str().substr(0, text.str().find("---")), &tensors);
    if (!root.ok()) continue;
    const auto schedule = ScheduleGraph(*root, budget);
    if (!schedule.ok()) continue;
    for (const ScheduledKernel& kernel : schedule->kernels) {
      UOp now = CopyLive(kernel.graph.root(), graph), before;
      while (now != before) {
        before = now;
        now = Rewriter(graph, kTables, budget).Rewrite(now);
      }
      roots.push_back(now);
    }
  }
  return roots;
}

// The time for one node of a sweep with `tables`.
double NodeTime(Graph* graph, const std::vector<UOp>& roots, int64_t nodes,
                std::span<const RuleTable* const> tables, Budget* budget) {
  Rewriter rewriter(graph, tables, budget);
  const auto begin = std::chrono::steady_clock::now();
  for (const UOp root : roots) benchmark::DoNotOptimize(rewriter.Rewrite(root));
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / static_cast<double>(nodes);
}

void BM_RuleMisses(benchmark::State& state) {
  Budget budget({.nodes = INT64_MAX, .rewrites = INT64_MAX, .kernels = INT64_MAX});
  Graph graph;
  const std::vector<UOp> roots = Kernels(&graph, &budget);
  int64_t nodes = 0;
  for (const UOp root : roots) nodes += static_cast<int64_t>(PostOrder(root).size());
  if (nodes == 0) return state.SkipWithError("no kernels");
  // The machine has other work: the least of many turns is what the code costs.
  double sweep = 1e9, empty = 1e9;
  for (auto _ : state) {
    sweep = std::min(sweep, NodeTime(&graph, roots, nodes, kTables, &budget));
    empty = std::min(empty, NodeTime(&graph, roots, nodes, {}, &budget));
  }
  size_t rules = 0;
  for (const RuleTable* table : kTables) rules += table->rules().size();
  state.counters["rules"] = static_cast<double>(rules);
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["sweep_ns_per_node"] = sweep;
  state.counters["miss_ns_per_node"] = sweep - empty;
}
BENCHMARK(BM_RuleMisses);

}  // namespace
}  // namespace telegrad

BENCHMARK_MAIN();
