// One walk over the post-order from the sink. What a node becomes is a list of nodes of the new
// graph, one for each instance of the value; the value of a TUPLE, CALL or LOOP is a list of such
// lists.
//
// A body is walked once for every call and every iteration, in a scope of its own that knows what
// the ARGs stand for. Scopes live as long as their call does, so they are a stack next to that of
// the walk. Interning makes equal results one node; what hostile nesting multiplies is stopped by a
// limit on the growth.
#include "engine/schedule/legalize.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/schedule/legalizer.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// Iterations about which variables that stay decide, of one loop and of all: each is computed in
// every run. With values put in, a run has those of its own.
constexpr int64_t kMostVaryingTrips = 8, kMostVaryingTripsOfAll = 64;

}  // namespace

absl::Status Legalizer::Spend(int64_t n) {
  spent_ += n;
  const auto limit = static_cast<int64_t>(order_.size()) + kMaxNodes;
  if ((spent_ > limit || g_.size() > limit) && keeps_variables_) {
    return Unimplemented("with loops up to their bounds the graph grows by more than ", kMaxNodes,
                         " nodes");
  }
  if (spent_ > limit || g_.size() > limit) {
    return ResourceExhausted("inlining calls, unrolling loops and making instances: more than ",
                             kMaxNodes, " nodes more than the graph has");
  }
  if (++calls_ % 1024 == 0) {
    const size_t pools = pool_.size() * sizeof(UOp) + lists_.size() * sizeof(InstanceRef);
    TG_RETURN_IF_ERROR(held_.GrowTo(g_.bytes() + static_cast<int64_t>(pools)));
    TG_RETURN_IF_ERROR(budget_->CheckTime());
  }
  return budget_->SpendNodes(n);
}

absl::Status Legalizer::CheckVariables() {
  std::ranges::sort(variables_);
  absl::flat_hash_set<int64_t> known;
  for (uint32_t node : order_) {
    if (from_.op(node) == Op::kVar && from_.src(node).empty())
      known.insert(from_.at(node).var_id());
  }
  for (size_t i = 0; i < variables_.size(); ++i) {
    const int64_t id = variables_[i].id;
    if (i > 0 && variables_[i - 1].id == id) {
      return InvalidArgument("variable ", id, " is given twice");
    }
    if (!known.contains(id)) return InvalidArgument("variable ", id, " is none of the graph's");
  }
  return absl::OkStatus();
}

absl::StatusOr<FrozenGraph> Legalizer::Run() {
  TG_RETURN_IF_ERROR(CheckVariables());
  TG_RETURN_IF_ERROR(Walk());
  const uint32_t root = pool_[top_[sink_.id()].first].id();
  return FrozenGraph{std::move(graph_), root};
}

absl::Status Legalizer::Walk() {
  stack_.push_back({kTop, sink_.id()});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    const UOp u = from_.at(top.node);
    // The body of a CALL or LOOP is walked in its own scope.
    const bool calls = u.is(Op::kCall) || u.is(Op::kLoop);
    if (calls && top.next == 0) top.next = 1;
    if (!top.inside && top.next < u.num_src()) {
      const uint32_t source = u.src(top.next++).id();
      if (!Known(top.scope, source)) stack_.push_back({top.scope, source});
      continue;
    }
    std::optional<InstanceRef> made;
    TG_RETURN_IF_ERROR(Finish(stack_.size() - 1, &made));
    TG_RETURN_IF_ERROR(g_.status());
    if (!made) continue;
    const auto [scope, node] = std::pair(stack_.back().scope, stack_.back().node);
    if (scope == kTop) {
      top_[node] = *made;
    } else {
      scopes_[scope - 1].made.emplace(node, *made);
    }
    stack_.pop_back();
  }
  return absl::OkStatus();
}

absl::Status Legalizer::Finish(size_t frame, std::optional<InstanceRef>* out) {
  const UOp u = from_.at(stack_[frame].node);
  if (!stack_[frame].inside) TG_RETURN_IF_ERROR(Spend(1));
  switch (u.op()) {
    case Op::kCall:
      return FinishCall(frame, out);
    case Op::kLoop:
      return FinishLoop(frame, out);
    default: {
      TG_ASSIGN_OR_RETURN(*out, Structure(stack_[frame], u));
      return absl::OkStatus();
    }
  }
}

// --- functions ---

void Legalizer::Enter(size_t frame, std::vector<InstanceRef> args) {
  scopes_.emplace_back().args = std::move(args);
  const UOp body = from_.at(stack_[frame].node).src(0);
  stack_[frame].inside = true;
  stack_.push_back({static_cast<uint32_t>(scopes_.size()), body.id()});
}

absl::StatusOr<InstanceRef> Legalizer::Leave(size_t frame) {
  const UOp body = from_.at(stack_[frame].node).src(0);
  const InstanceRef values = scopes_.back().made.at(body.id());
  scopes_.pop_back();
  TG_RETURN_IF_ERROR(Spend(values.count));
  return values;
}

absl::Status Legalizer::FinishCall(size_t frame, std::optional<InstanceRef>* out) {
  const Frame& f = stack_[frame];
  const UOp u = from_.at(f.node);
  if (f.inside) {
    TG_ASSIGN_OR_RETURN(*out, Leave(frame));
    return absl::OkStatus();
  }
  std::vector<InstanceRef> args;
  for (int i = 1; i < u.num_src(); ++i) args.push_back(Of(f.scope, u.src(i)));
  Enter(frame, std::move(args));
  return absl::OkStatus();
}

// Ids ascend from sources to users. As InferBounds goes: what data says, what is read from memory,
// and how large a value is, decide no bound, but for an IOTA.
bool Legalizer::Varies(UOp u) {
  for (auto id = static_cast<uint32_t>(varies_.size()); id <= u.id(); ++id) {
    const Op op = g_.op(id);
    std::span<const uint32_t> src = g_.src(id);
    if (op == Op::kReduce || op == Op::kScatter || op == Op::kAfter) src = {};
    if (Is(op, kMovement) || op == Op::kGather) src = src.first(1);
    varies_.push_back(op == Op::kVar ||
                      std::ranges::any_of(src, [&](uint32_t s) { return varies_[s]; }));
  }
  return varies_[u.id()];
}

absl::Status Legalizer::CheckTrips(UOp trips, int64_t most) {
  const int64_t varying = most - std::max<int64_t>(trips.vmin(), 0);
  if (varying <= 0 || !Varies(trips)) return absl::OkStatus();
  varying_trips_ += std::min(varying, kMostVaryingTripsOfAll + 1);
  if (varying <= kMostVaryingTrips && varying_trips_ <= kMostVaryingTripsOfAll) {
    return absl::OkStatus();
  }
  return Unimplemented("variables decide about ", varying, " of the ", most,
                       " iterations of a loop, more than ", kMostVaryingTrips, " of one or ",
                       kMostVaryingTripsOfAll, " of all loops");
}

// Unrolled. Where the number of iterations is not known, each one up to its bound decides whether
// it counts.
absl::Status Legalizer::FinishLoop(size_t frame, std::optional<InstanceRef>* out) {
  Frame& f = stack_[frame];
  const UOp u = from_.at(f.node);
  const UOp trips = Integer(u.src(1), Instance(Of(f.scope, u.src(1)), 0));
  if (!f.inside) {
    // A client's bound holds where the rewritten expression lost it.
    f.trips = std::min(trips.vmax(), u.src(1).vmax());
    if (keeps_variables_) TG_RETURN_IF_ERROR(CheckTrips(trips, f.trips));
    for (int i = 2; i < u.num_src(); ++i) f.carried.push_back(Of(f.scope, u.src(i)));
  } else {
    TG_ASSIGN_OR_RETURN(const InstanceRef values, Leave(frame));
    const bool counts = trips.vmin() > f.iteration;
    const UOp more =
        counts ? UOp() : g_.Make(Op::kCmpLt, {g_.Const(trips.dtype(), f.iteration), trips});
    for (size_t i = 0; i < f.carried.size(); ++i) {
      const InstanceRef next = lists_[values.first + i], old = f.carried[i];
      if (counts) {
        f.carried[i] = next;
        continue;
      }
      const uint32_t count = std::max(next.count, old.count);
      TG_RETURN_IF_ERROR(Spend(count));
      const auto first = static_cast<uint32_t>(pool_.size());
      for (uint32_t k = 0; k < count; ++k) {
        const UOp there =
            Instance(next, k).devices().empty() ? Instance(old, k) : Instance(next, k);
        pool_.push_back(g_.Make(Op::kWhere, {Near(more, there), Near(Instance(next, k), there),
                                             Near(Instance(old, k), there)}));
      }
      f.carried[i] = {first, count};
    }
    ++f.iteration;
  }
  if (f.iteration >= f.trips) {
    *out = List(f.carried);
    return absl::OkStatus();
  }
  std::vector<InstanceRef> args{Single(g_.Index(f.iteration))};
  args.insert(args.end(), f.carried.begin(), f.carried.end());
  Enter(frame, std::move(args));
  return absl::OkStatus();
}

// --- one node, all instances ---

absl::StatusOr<InstanceRef> Legalizer::Structure(const Frame& frame, UOp u) {
  const auto source = [&](int i) { return Of(frame.scope, u.src(i)); };
  switch (u.op()) {
    case Op::kArg:
      return scopes_[frame.scope - 1].args[static_cast<size_t>(u.slot())];
    case Op::kTuple: {
      std::vector<InstanceRef> values;
      for (int i = 0; i < u.num_src(); ++i) values.push_back(source(i));
      TG_RETURN_IF_ERROR(Spend(u.num_src()));
      return List(values);
    }
    case Op::kGetTuple:
      return lists_[source(0).first + static_cast<uint32_t>(u.number())];
    case Op::kCopy:
      return Copy(u, pool_[source(0).first]);
    case Op::kMStack: {
      std::vector<UOp> parts;
      for (int i = 0; i < u.num_src(); ++i) parts.push_back(pool_[source(i).first]);
      TG_RETURN_IF_ERROR(Spend(u.num_src()));
      pool_.insert(pool_.end(), parts.begin(), parts.end());
      return InstanceRef{static_cast<uint32_t>(pool_.size() - parts.size()),
                         static_cast<uint32_t>(parts.size())};
    }
    case Op::kMSelect:
      return Single(Instance(source(0), static_cast<uint32_t>(u.number())));
    case Op::kAllReduce:
    case Op::kUnshard:
      return Collective(u, source(0));
    default:
      return Instances(frame, u);
  }
}

absl::StatusOr<InstanceRef> Legalizer::Instances(const Frame& frame, UOp u) {
  uint32_t count = 1;
  for (int i = 0; i < u.num_src(); ++i) count = std::max(count, Of(frame.scope, u.src(i)).count);
  if (count > 1) TG_RETURN_IF_ERROR(Spend(static_cast<int64_t>(count) * u.num_src()));
  std::vector<UOp> src, made;
  for (uint32_t k = 0; k < count; ++k) {
    src.clear();
    for (int i = 0; i < u.num_src(); ++i) src.push_back(Instance(Of(frame.scope, u.src(i)), k));
    TG_ASSIGN_OR_RETURN(const UOp node, Node(u, src));
    if (!node.valid()) return g_.status();
    made.push_back(node);
  }
  pool_.insert(pool_.end(), made.begin(), made.end());
  return InstanceRef{static_cast<uint32_t>(pool_.size() - count), count};
}

absl::StatusOr<FrozenGraph> Legalize(UOp sink, std::span<const VarValue> variables, Budget* budget,
                                     const Placement* placement) {
  return Legalizer(sink, variables, budget, placement).Run();
}

absl::StatusOr<FrozenGraph> LegalizeForAll(UOp sink, const Placement& placement, Budget* budget) {
  return Legalizer(sink, std::nullopt, budget, &placement).Run();
}

}  // namespace telegrad
