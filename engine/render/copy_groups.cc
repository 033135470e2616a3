// Counted is only what is certain to have been started in between: every loop and role that a group
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
  const AxisType type = graph.at(opened).axis_type();
  return type == AxisType::kLoop || type == AxisType::kReduce;
}

}  // namespace

CopyGroups::CopyGroups(const Program& program, const std::function<bool(UOp)>& counts) {
  std::vector<uint32_t> path;
  bool open = false;  // whether the next copy belongs to the last group
  for (size_t position = 0; position < program.order.size(); ++position) {
    const UOp u = program.graph->at(program.order[position]);
    const bool opens = u.is(Op::kRange) || u.is(Op::kRole);
    if (opens || u.is(Op::kEnd) || u.is(Op::kWait)) open = false;
    if (opens) path.push_back(u.id());
    if (u.is(Op::kEnd) && !path.empty()) path.pop_back();
    if (u.is(Op::kWait)) waits_.push_back({{u}, position, path});
    if (!u.is(Op::kCopyAsync) || !counts(u)) continue;
    if (!open) groups_.push_back({{}, position, path});
    groups_.back().nodes.push_back(u);
    open = true;
  }
}

const CopyGroups::OrderPosition* CopyGroups::GroupOf(UOp copy) const {
  const auto group = std::ranges::find_if(groups_, [&](const OrderPosition& g) {
    return std::ranges::find(g.nodes, copy) != g.nodes.end();
  });
  return group == groups_.end() ? nullptr : &*group;
}

bool CopyGroups::IsLast(UOp copy) const {
  const OrderPosition* const group = GroupOf(copy);
  return group != nullptr && group->nodes.back() == copy;
}

// Groups that have been started since the last time that `group` was.
int64_t CopyGroups::After(const OrderPosition& group, const OrderPosition& wait) const {
  return std::ranges::count_if(groups_, [&](const OrderPosition& other) {
    return other.position > group.position && other.position < wait.position &&
           std::ranges::all_of(
               other.path,
               [&](uint32_t loop) { return Holds(group.path, loop) || Holds(wait.path, loop); });
  });
}

std::optional<int64_t> CopyGroups::Unfinished(UOp wait) const {
  const auto at = std::ranges::find_if(
      waits_, [&](const OrderPosition& other) { return other.nodes[0] == wait; });
  if (at == waits_.end()) return std::nullopt;
  const int64_t rounds = wait.number();
  std::optional<int64_t> least;
  for (int s = 0; s < wait.num_src(); ++s) {
    const OrderPosition* const group = GroupOf(wait.src(s));
    if (group == nullptr) continue;
    const bool repeats = std::ranges::any_of(
        group->path, [&](uint32_t id) { return IsSequential(*wait.graph(), id); });
    if (rounds > 0 && !repeats) continue;  // there was one at most
    const int64_t each = std::ranges::count(groups_, group->path, &OrderPosition::path);
    const int64_t unfinished = After(*group, *at) + rounds * each;
    least = std::min(least.value_or(unfinished), unfinished);
  }
  return least;
}

}  // namespace telegrad
