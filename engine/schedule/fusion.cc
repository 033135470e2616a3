// The fusion decision, consumers first. When a node is reached, everything that uses it has been
// decided, so it is known which kernels need it, at which positions, and how often each position is
// computed there, loops that its index does not depend on left out. Then one comparison decides:
// computing it again for every use, or once, with a store and a load for every use instead. A
// value that is stored is written by a kernel that computes all of it anyway, if there is one and
// no reader has to run before that, else by a kernel of its own. Kernels with the same loops that
// need the same large value at the same positions become one.
//
// What a node costs depends on which of its sources are stored, which is decided later: a first
// guess is refined by planning again with what the plan before has stored.
#include "engine/schedule/fusion.h"

#include <algorithm>

#include "engine/schedule/fusion_planner.h"

namespace telegrad {
namespace {

constexpr int kRounds = 4;

}  // namespace

absl::StatusOr<FusionPlan> FusionPlanner::Run() && {
  TG_RETURN_IF_ERROR(held_.Grow(size_ * kBytesPerNode));
  std::vector<NestGroup> groups;
  do {
    TG_RETURN_IF_ERROR(PlanInRounds());
    groups = JoinNests(graph_, plan_.order, drafts_, stored_values_, options_);
  } while (FindFar(groups));
  plan_.level.resize(size_);
  for (uint32_t id : plan_.order) plan_.level[id] = costs_[id].level;
  EmitKernels(groups);
  return std::move(plan_);
}

absl::Status FusionPlanner::PlanInRounds() {
  stored_ = FirstGuess();
  for (int round = 0; round < kRounds; ++round) {
    TG_RETURN_IF_ERROR(PlanOnce());
    std::vector<bool> stored(size_);
    for (uint32_t id : plan_.order) stored[id] = plan_.materialized(id);
    if (stored == stored_) break;
    stored_ = std::move(stored);
  }
  return absl::OkStatus();
}

bool FusionPlanner::FindFar(const std::vector<NestGroup>& groups) {
  absl::flat_hash_set<uint32_t> kept;
  for (const NestGroup& group : groups) kept.insert(group.kept.begin(), group.kept.end());
  const size_t before = far_.size();
  for (const uint32_t id : plan_.order) {
    if (plan_.decision[id] == Materialize::kNear && !kept.contains(id)) far_.insert(id);
  }
  return far_.size() > before;
}

void FusionPlanner::CountUses() {
  uses_.assign(size_, 0);
  last_user_.assign(size_, 0);
  for (uint32_t id : plan_.order) {
    for (uint32_t s : graph_.src(id)) {
      ++uses_[s];
      last_user_[s] = id;
    }
  }
}

std::vector<bool> FusionPlanner::FirstGuess() const {
  std::vector<bool> stored(size_, false), holds(size_, false);
  for (uint32_t id : plan_.order) {
    const Op op = graph_.op(id);
    if (op == Op::kContiguous || op == Op::kScatter) stored[id] = true;
    for (uint32_t s : graph_.src(id)) holds[id] = holds[id] || (holds[s] && !stored[s]);
    if (op == Op::kReduce && IsContraction(graph_.at(id))) holds[id] = true;
    if (!holds[id] || Is(op, kEffect) || op == Op::kAfter) continue;
    const Op user = graph_.op(last_user_[id]);
    const bool joins = uses_[id] == 1 && (Is(user, kAlu) || Is(user, kMovement) ||
                                          user == Op::kStore || user == Op::kDetach);
    if (!joins && !Is(op, kMovement)) stored[id] = true;
  }
  return stored;
}

absl::Status FusionPlanner::PlanOnce() {
  costs_ = EstimateCosts(graph_, plan_.order, stored_, options_.costs);
  drafts_.clear();
  plan_.decision.assign(size_, Materialize::kFused);
  plan_.aliases.clear();
  kernel_uses_.assign(size_, {});
  readers_.clear();
  stored_values_.clear();
  for (auto it = plan_.order.rbegin(); it != plan_.order.rend(); ++it) {
    TG_RETURN_IF_ERROR(Visit(*it));
    kernel_uses_[*it] = {};
  }
  return absl::OkStatus();
}

absl::Status FusionPlanner::Visit(uint32_t id) {
  const Op op = graph_.op(id);
  const UOp u = graph_.at(id);
  TG_RETURN_IF_ERROR(budget_->SpendSteps(
      1 + static_cast<int64_t>(graph_.src(id).size() * (1 + kernel_uses_[id].size()))));
  if (op == Op::kStore) {
    VisitStore(u);
    return absl::OkStatus();
  }
  std::vector<KernelUse>& uses = kernel_uses_[id];
  if (op == Op::kSink || uses.empty()) return absl::OkStatus();
  if (op == Op::kAfter) {
    NoteOperand(id, uses);
    for (const KernelUse& use : uses) {
      for (int i = 1; i < u.num_src(); ++i) readers_[u.src(i).id()].push_back(use.draft);
    }
    return absl::OkStatus();
  }
  MergeKernels(id, &uses);
  if (op == Op::kParam) NoteOperand(id, uses);
  if (op == Op::kParam || op == Op::kConst || op == Op::kIota) return absl::OkStatus();
  if (op == Op::kScatter) {
    VisitScatter(u, uses);
    return absl::OkStatus();
  }
  std::string why;
  const Materialize decision = Choose(u, uses, &why);
  plan_.decision[id] = decision;
  if (decision == Materialize::kFused) {
    for (const KernelUse& use : uses) AddSources(u, use);
  } else {
    Store(u, uses, std::move(why));
  }
  return absl::OkStatus();
}

void FusionPlanner::EmitKernels(const std::vector<NestGroup>& groups) {
  for (const NestGroup& group : groups) {
    PlannedKernel kernel;
    for (int d : group.drafts) {
      Draft& draft = drafts_[d];
      if (draft.merged_into >= 0 || draft.roots.empty()) continue;
      std::ranges::sort(draft.roots);
      kernel.nests.push_back({std::move(draft.roots)});
      std::ranges::move(draft.reasons, std::back_inserter(kernel.reasons));
    }
    if (kernel.nests.empty()) continue;
    if (kernel.nests.size() > 1) {
      kernel.shared_loops = group.shared;
      kernel.shared_tile = group.tile;
      kernel.kept = group.kept;
      kernel.reasons.push_back(StrCat(kernel.nests.size(), " nests inside of ", group.shared,
                                      group.shared == 1 ? " loop" : " loops"));
      if (!kernel.kept.empty()) {
        kernel.reasons.push_back(StrCat("keeps ", kernel.kept.size(), " values between them, ",
                                        group.tile, group.tile == 1 ? " row" : " rows",
                                        " at a time"));
      }
    }
    plan_.kernels.push_back(std::move(kernel));
  }
  std::ranges::sort(plan_.kernels, {},
                    [](const PlannedKernel& k) { return k.nests.back().roots.back(); });
}

std::string_view Name(Materialize reason) {
  switch (reason) {
    case Materialize::kFused:
      return "fused into its users";
    case Materialize::kRequested:
      return "stored on request";
    case Materialize::kReduction:
      return "stored: its reduction does not fit into its users' loops";
    case Materialize::kSize:
      return "stored: the kernel would grow too large";
    case Materialize::kExact:
      return "stored: it is compared with itself";
    case Materialize::kCost:
      return "stored: recomputing costs more";
    case Materialize::kNear:
      return "kept: recomputing costs more";
    case Materialize::kScatter:
      return "scatters rows";
  }
  return "";
}

absl::StatusOr<FusionPlan> PlanFusion(UOp sink, const FusionOptions& options, Budget* budget) {
  return FusionPlanner(sink, options, budget).Run();
}

}  // namespace telegrad
