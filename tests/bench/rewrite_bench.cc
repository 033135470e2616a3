// What rule misses cost: real kernels at the fixed point of the rule tables are swept again, so
// that each node meets all rows and none matches. Prints nanoseconds for one node: of the whole
// sweep (the walk, finding each rebuilt node, the memo, the dispatch and the tries), or of the
// misses, which is what the sweep costs more than one without rules. What they are compared with is
// one lookup of each of the same nodes, by its operation and sources, in a hash table of all.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "engine/base/status.h"
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
  for (const UOp root : roots)
    if (!rewriter.Rewrite(root).valid()) return 1e9;
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / static_cast<double>(nodes);
}

// The nodes as keys of a table from the standard library.
class NodeTable {
 public:
  explicit NodeTable(const std::vector<UOp>& roots) {
    for (const UOp root : roots) {
      for (const uint32_t id : PostOrder(root)) {
        const UOp u = root.graph()->at(id);
        std::vector<uint32_t> key = {static_cast<uint32_t>(u.op()),
                                     static_cast<uint32_t>(u.dtype())};
        for (int i = 0; i < u.num_src(); ++i) key.push_back(u.src(i).id());
        table_.emplace(key, u.id());
        keys_.push_back(std::move(key));
      }
    }
  }
  // For one node.
  double Time() const {
    const auto begin = std::chrono::steady_clock::now();
    uint64_t found = 0;
    for (const auto& key : keys_) found += table_.find(key) != table_.end();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    return found == keys_.size() ? time.count() / static_cast<double>(found) : 1e9;
  }

 private:
  struct HashOf {
    size_t operator()(const std::vector<uint32_t>& key) const {
      uint64_t hash = 14695981039346656037u;  // FNV-1a, a word at a time
      for (const uint32_t word : key) hash = (hash ^ word) * 1099511628211u;
      return hash;
    }
  };
  std::unordered_map<std::vector<uint32_t>, uint32_t, HashOf> table_;
  std::vector<std::vector<uint32_t>> keys_;
};

absl::StatusOr<double> Measure(std::string_view what, int count) {
  if (what != "misses" && what != "sweep" && what != "lookups") {
    return InvalidArgument("there is no benchmark ", what);
  }
  Budget budget({.nodes = INT64_MAX, .rewrites = INT64_MAX, .kernels = INT64_MAX});
  Graph graph;
  const std::vector<UOp> roots = Kernels(&graph, &budget);
  int64_t nodes = 0;
  for (const UOp root : roots) nodes += static_cast<int64_t>(PostOrder(root).size());
  if (nodes == 0) return Internal("no kernels");
  // The machine has other work: the least of many turns is what the code costs.
  double sweep = 1e9, empty = 1e9;
  if (what == "lookups") {
    const NodeTable table(roots);
    for (int i = 0; i < count; ++i) empty = std::min(empty, table.Time());
    return empty;
  }
  for (int i = 0; i < count; ++i) {
    sweep = std::min(sweep, NodeTime(&graph, roots, nodes, kTables, &budget));
    empty = std::min(empty, NodeTime(&graph, roots, nodes, {}, &budget));
  }
  TG_RETURN_IF_ERROR(graph.status());
  return what == "sweep" ? sweep : sweep - empty;
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "Usage: rewrite_bench misses|sweep|lookups COUNT\n");
    return 2;
  }
  const absl::StatusOr<double> result = telegrad::Measure(argv[1], count);
  if (!result.ok()) {
    std::fprintf(stderr, "rewrite_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.1f\n", *result);
  return 0;
}
