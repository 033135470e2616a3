// The fusion decision, sources first. A value is either cheap to recompute, then every user does it
// for itself, or it is stored once. Three facts decide:
//
//   cone    the distinct ALU ops that a recomputation would redo, down to the nearest values in
//   memory reads   how often each element would be recomputed: users through EXPAND multiply, users
//   add up reduce  whether the cone holds a reduction, whose recomputation multiplies by its whole
//   extent
//
// A value with a reduction moves on into its only elementwise user (the epilogue joins the
// reduction's kernel) and is stored as soon as it is needed more than once or by another reduction.
// A value without one is stored when redoing its cone costs more than the memory traffic that
// storing adds.
#include "engine/schedule/fusion.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// Redone work per element, in simple ALU operations, that a store and a load are worth.
constexpr double kStoreCost = 32;
constexpr size_t kMaxCone = 64;
// Operations of one kernel, counted as a tree. Bounds what the compiler is asked to do at once.
constexpr int64_t kMaxKernelOps = 1000;
constexpr double kManyReads = 1e12;

double OpCost(Op op) {
  switch (op) {
    case Op::kExp2:
    case Op::kLog2:
      return 12;
    case Op::kSqrt:
    case Op::kRecip:
    case Op::kFDiv:
    case Op::kFloorDiv:
    case Op::kFloorMod:
      return 6;
    case Op::kBitcast:
    case Op::kCast:
      return 0.5;
    default:
      return 1;
  }
}

// Ops whose only user may take a reduction along: same elements, same order.
bool KeepsElements(Op op) { return Is(op, kAlu) || op == Op::kReshape || op == Op::kDetach; }

struct Uses {
  int count = 0;
  uint32_t only = 0;  // the last user seen; the only one if count is 1
};

class Planner {
 public:
  Planner(UOp sink, Budget* budget)
      : graph_(*sink.graph()), size_(sink.id() + 1), budget_(budget), held_(budget) {
    plan_.order = PostOrder(sink);
    plan_.decision.assign(size_, Materialize::kFused);
    uses_.resize(size_);
    reads_.assign(size_, 0);
    uses_left_.resize(size_);
    cone_.resize(size_);
    reduces_.assign(size_, false);
    ops_.assign(size_, 0);
  }

  absl::StatusOr<FusionPlan> Run() && {
    TG_RETURN_IF_ERROR(held_.Grow(size_ * kBytesPerNode));
    CountUses();
    for (uint32_t id : plan_.order) {
      TG_RETURN_IF_ERROR(budget_->SpendSteps(1 + static_cast<int64_t>(graph_.src(id).size())));
      Decide(id);
      TG_RETURN_IF_ERROR(held_.GrowTo(size_ * kBytesPerNode + cone_bytes_));
    }
    return std::move(plan_);
  }

 private:
  void CountUses() {
    for (auto it = plan_.order.rbegin(); it != plan_.order.rend(); ++it) {
      const uint32_t user = *it;
      const double here = ReadsBy(user);
      for (uint32_t s : graph_.src(user)) {
        ++uses_[s].count;
        ++uses_left_[s];
        uses_[s].only = user;
        const double factor = std::max(1.0, Evaluations(user, s) / std::max(1.0, Elements(s)));
        reads_[s] = std::min(kManyReads, reads_[s] + here * factor);
      }
    }
  }

  // How often an evaluation of all of `user` happens. Reductions and stores are taken to run once.
  double ReadsBy(uint32_t user) const {
    const Op op = graph_.op(user);
    if (Is(op, kEffect) || op == Op::kReduce || op == Op::kContiguous || op == Op::kAfter ||
        op == Op::kScatter) {
      return 1;
    }
    return std::max(1.0, reads_[user]);
  }

  // How many elements of `source` one evaluation of `user` computes, where that may be more than
  // each once: repeated ones, and for CAT those that the selection throws away.
  double Evaluations(uint32_t user, uint32_t source) const {
    switch (graph_.op(user)) {
      case Op::kExpand:
      case Op::kGather:
      case Op::kCat:
        return Elements(user);
      case Op::kScatter:
        return source == graph_.src(user)[0] ? 0 : Elements(graph_.src(user)[2]);
      default:
        return 0;
    }
  }

  double Elements(uint32_t id) const { return static_cast<double>(NumElements(graph_.shape(id))); }

  void MergeCone(uint32_t id, uint32_t from) {
    std::vector<uint32_t> merged;
    std::ranges::set_union(cone_[id], cone_[from], std::back_inserter(merged));
    if (merged.size() > kMaxCone) merged.resize(kMaxCone);
    SetCone(id, std::move(merged));
  }

  void SetCone(uint32_t id, std::vector<uint32_t> cone) {
    cone_bytes_ += static_cast<int64_t>((cone.size() - cone_[id].size()) * sizeof(uint32_t));
    cone.shrink_to_fit();
    cone_[id] = std::move(cone);
  }

  double ConeCost(uint32_t id) const {
    double cost = 0;
    for (uint32_t n : cone_[id]) cost += OpCost(graph_.op(n));
    return cost;
  }

  void Decide(uint32_t id) {
    const Op op = graph_.op(id);
    if (Is(op, kEffect) || op == Op::kAfter || op == Op::kParam || op == Op::kConst) return;
    for (uint32_t s : graph_.src(id)) {
      const bool last = --uses_left_[s] == 0;
      if (plan_.materialized(s)) continue;
      MergeCone(id, s);
      if (last) SetCone(s, {});  // nobody else asks
      ops_[id] = std::min(kMaxKernelOps + 1, ops_[id] + ops_[s]);
      if (reduces_[s]) reduces_[id] = true;
    }
    if (Is(op, kAlu) && cone_[id].size() < kMaxCone) {
      std::vector<uint32_t> cone = cone_[id];
      cone.insert(std::ranges::upper_bound(cone, id), id);
      SetCone(id, std::move(cone));
    }
    if (op == Op::kReduce) reduces_[id] = true;
    ++ops_[id];

    const Materialize decision = Choose(id);
    plan_.decision[id] = decision;
    if (decision != Materialize::kFused) {
      SetCone(id, {});
      ops_[id] = 0;
      reduces_[id] = false;
    }
  }

  Materialize Choose(uint32_t id) const {
    if (graph_.op(id) == Op::kContiguous) return Materialize::kRequested;
    if (graph_.op(id) == Op::kScatter) return Materialize::kScatter;
    if (ops_[id] > kMaxKernelOps) return Materialize::kSize;
    const Uses& uses = uses_[id];
    if (reduces_[id]) {
      const Op user = graph_.op(uses.only);
      if (uses.count == 1 && (user == Op::kStore || KeepsElements(user))) {
        return Materialize::kFused;
      }
      return Materialize::kReduceReuse;
    }
    const double redone = ConeCost(id) * (reads_[id] - 1);
    const bool deep = cone_[id].size() >= kMaxCone && uses.count > 1;
    return redone >= kStoreCost || deep ? MaterializeAtLastElementwise(id) : Materialize::kFused;
  }

  // Storing further down an elementwise chain stores the same number of elements and redoes less.
  Materialize MaterializeAtLastElementwise(uint32_t id) const {
    const Uses& uses = uses_[id];
    if (uses.count == 1 && Is(graph_.op(uses.only), kAlu) &&
        NumElements(graph_.shape(uses.only)) == NumElements(graph_.shape(id)) &&
        cone_[id].size() < kMaxCone) {
      return Materialize::kFused;
    }
    // A scalar is recomputed from scalars: never worth a kernel of its own unless it is deep.
    if (NumElements(graph_.shape(id)) == 1 && cone_[id].size() < kMaxCone) {
      return Materialize::kFused;
    }
    return Materialize::kCost;
  }

  // Of the tables below, without what the cones hold.
  static constexpr int64_t kBytesPerNode = 80;

  const Graph& graph_;
  const uint32_t size_;
  Budget* budget_;
  Budget::Held held_;
  FusionPlan plan_;
  std::vector<Uses> uses_;
  std::vector<double> reads_;
  std::vector<uint32_t> uses_left_;  // users not decided yet
  std::vector<std::vector<uint32_t>> cone_;
  int64_t cone_bytes_ = 0;
  std::vector<bool> reduces_;
  std::vector<int64_t> ops_;
};

}  // namespace

std::string_view Name(Materialize reason) {
  switch (reason) {
    case Materialize::kFused:
      return "fused into its users";
    case Materialize::kRequested:
      return "stored on request";
    case Materialize::kReduceReuse:
      return "stored: a reduction is used again";
    case Materialize::kSize:
      return "stored: the kernel would grow too large";
    case Materialize::kCost:
      return "stored: recomputing costs more";
    case Materialize::kScatter:
      return "scatters rows";
  }
  return "";
}

absl::StatusOr<FusionPlan> PlanFusion(UOp sink, Budget* budget) {
  return Planner(sink, budget).Run();
}

}  // namespace telegrad
