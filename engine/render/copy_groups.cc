// Counted is only what is certain to have been started in between: every loop and role that a copy
// is in holds the awaited copy or the WAIT, too.
#include "engine/render/copy_groups.h"

#include <algorithm>

namespace telegrad {
namespace {

bool Holds(const std::vector<uint32_t>& path, uint32_t loop) {
  return std::ranges::find(path, loop) != path.end();
}

bool IsSequential(const Graph& graph, uint32_t opened) {
  if (graph.op(opened) != Op::kRange) return false;
  const AxisType type{graph.arg(opened)[1]};
  return type == AxisType::kLoop || type == AxisType::kReduce;
}

}  // namespace

CopyGroups::CopyGroups(const Program& program, const std::function<bool(UOp)>& counts) {
  std::vector<uint32_t> path;
  for (size_t position = 0; position < program.order.size(); ++position) {
    const UOp u = program.graph->at(program.order[position]);
    if (u.is(Op::kRange) || u.is(Op::kRole)) path.push_back(u.id());
    if (u.is(Op::kEnd) && !path.empty()) path.pop_back();
    if (u.is(Op::kWait)) waits_.push_back({u, position, path});
    if (u.is(Op::kCopyAsync) && counts(u)) copies_.push_back({u, position, path});
  }
}

// Copies that have been started since the last time that `copy` was.
int64_t CopyGroups::After(const OrderPosition& copy, const OrderPosition& wait) const {
  return std::ranges::count_if(copies_, [&](const OrderPosition& other) {
    return other.position > copy.position && other.position < wait.position &&
           std::ranges::all_of(
               other.path,
               [&](uint32_t loop) { return Holds(copy.path, loop) || Holds(wait.path, loop); });
  });
}

std::optional<int64_t> CopyGroups::Unfinished(UOp wait) const {
  const auto at = std::ranges::find(waits_, wait, &OrderPosition::node);
  if (at == waits_.end()) return std::nullopt;
  const int64_t rounds = wait.arg(0);
  std::optional<int64_t> least;
  for (int s = 0; s < wait.num_src(); ++s) {
    const auto copy = std::ranges::find(copies_, wait.src(s), &OrderPosition::node);
    if (copy == copies_.end()) continue;
    const bool repeats = std::ranges::any_of(
        copy->path, [&](uint32_t id) { return IsSequential(*wait.graph(), id); });
    if (rounds > 0 && !repeats) continue;  // there was one at most
    const int64_t each = std::ranges::count(copies_, copy->path, &OrderPosition::path);
    const int64_t unfinished = After(*copy, *at) + rounds * each;
    least = std::min(least.value_or(unfinished), unfinished);
  }
  return least;
}

}  // namespace telegrad
