// A kernel that reduces values of a region gets the part of the region that it needs as its own
// nodes. DETACHes around a factor of each sum of products tell them from those of other kernels, as
// equal nodes are one. Where two such sums meet, and before what is reduced, the part is cut:
// CONTIGUOUS marks a value of which the kernel keeps some rows, in the order of its loops, with
// what is reduced last. A kernel is made of nests that compute a cut each, of one sum of products,
// and a nest that reduces:
//
//   y = sum over j of exp2(s - m)/l v     keeps s and the weights, and computes m and l (online.h)
//   m, l                                  keep s, where the kernel of y does not store them
//   d = sum over j of exp2(s - m) t       keeps exp2(s - m) and t, which is dy v^T
//   dq = sum over j of ds k               keeps exp2(s - m), ds
//   dk = sum over i of ds q               keeps both, an i beside the other
//
// One kernel, such as that of y, may have the values as they were, where lowering computes rows of
// them with their maximum and sum in blocks.
#include "engine/schedule/recompute.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/row_regions.h"

namespace telegrad {
namespace {

constexpr size_t kMaxSums = 16;  // of a region
constexpr size_t kMaxUses = 64;

// The uses of a region that one kernel has, but for one with the values as they were.
struct RowKernel {
  std::vector<size_t> uses;            // of the region
  absl::flat_hash_set<uint32_t> cuts;  // nodes
  uint64_t sums = 0;                   // of the region, by bit
};

struct RegionPlan {
  RowRegion region;
  std::vector<RowKernel> kernels = {};
  int whole = -1;                                     // the use that has the values as they were
  RangeSet whole_axes = 0;                            // of the first sum, that it reduces
  std::vector<size_t> stored = {};                    // uses that the same kernel has, and stores
  uint64_t whole_sums = 0;                            // that it needs
  absl::flat_hash_map<uint32_t, uint64_t> sums = {};  // by node: that it is computed from
};

class RegionPlanner {
 public:
  RegionPlanner(const Graph& graph, std::span<const uint32_t> order, const ScheduleCosts& costs,
                double private_bytes, bool row_blocks)
      : graph_(graph),
        costs_(costs),
        private_(private_bytes),
        row_blocks_(row_blocks),
        users_(graph.size(), 0) {
    for (const uint32_t id : order) {
      for (const uint32_t s : graph.src(id)) ++users_[s];
    }
  }

  // False: its values are better kept.
  bool Plan(RegionPlan* plan, RowStatistics statistics) const {
    const RowRegion& region = plan->region;
    if (region.sums.size() > kMaxSums || region.uses.size() > kMaxUses) return false;
    for (const uint32_t id : region.nodes) {
      uint64_t& sums = plan->sums[id];
      const auto sum = std::ranges::find(region.sums, id);
      if (sum != region.sums.end()) {
        sums = uint64_t{1} << (sum - region.sums.begin());
        continue;
      }
      for (const uint32_t s : graph_.src(id)) {
        if (const auto it = plan->sums.find(s); it != plan->sums.end()) sums |= it->second;
      }
    }
    SetWhole(plan);
    GroupUses(plan, statistics);
    if (plan->kernels.empty()) return HasSharedStatistics(*plan);
    for (RowKernel& kernel : plan->kernels) Cut(*plan, &kernel);
    SplitKernels(plan);
    return PaysOff(*plan);
  }

 private:
  // The axes of the sum that a use reduces.
  RangeSet ReducedAxes(const RegionUse& use, uint32_t sum) const {
    const Access& access = use.access.at(sum);
    RangeSet axes = 0;
    for (size_t i = 0; i < access.axes.size(); ++i) {
      if ((access.axes[i].ranges & use.reduced) != 0) axes |= RangeSet{1} << i;
    }
    return axes;
  }

  // A sum of products along rows of which a maximum or sum is taken, too.
  void SetWhole(RegionPlan* plan) const {
    const RowRegion& region = plan->region;
    for (size_t i = 0; i < region.uses.size() && plan->whole < 0; ++i) {
      const RegionUse& use = region.uses[i];
      const uint64_t sums = plan->sums.at(use.value);
      if (!use.product || std::popcount(sums) != 1) continue;
      if (!row_blocks_ && !FitsPrivately(use, 2)) continue;
      const uint32_t sum = region.sums[static_cast<size_t>(std::countr_zero(sums))];
      const RangeSet axes = ReducedAxes(use, sum);
      const bool along = std::ranges::any_of(region.uses, [&](const RegionUse& other) {
        return !other.product && plan->sums.at(other.value) == sums &&
               ReducedAxes(other, sum) == axes;
      });
      if (!along) continue;
      plan->whole = static_cast<int>(i);
      plan->whole_sums = sums;
      plan->whole_axes = axes;
    }
  }

  // Uses that reduce along the same rows of a sum that they share are of one kernel, and so are
  // maxima and sums of the same sums of products.
  void GroupUses(RegionPlan* plan, RowStatistics statistics) const {
    for (size_t i = 0; i < plan->region.uses.size(); ++i) {
      const RegionUse& use = plan->region.uses[i];
      const uint64_t sums = plan->sums.at(use.value);
      if (static_cast<int>(i) == plan->whole) continue;
      if (!use.product && sums == plan->whole_sums && statistics == RowStatistics::kWithResult &&
          ReducedAxes(use, FirstOf(*plan, sums)) == plan->whole_axes) {
        plan->stored.push_back(i);
        continue;
      }
      const auto kernel = std::ranges::find_if(plan->kernels, [&](const RowKernel& of) {
        const RegionUse& other = plan->region.uses[of.uses.front()];
        const uint64_t others = plan->sums.at(other.value);
        const bool shares = use.product ? (sums & others) != 0 : sums == others;
        if (!shares || use.product != other.product) return false;
        const uint32_t sum = FirstOf(*plan, sums & others);
        return ReducedAxes(use, sum) == ReducedAxes(other, sum);
      });
      RowKernel& to = kernel == plan->kernels.end() ? plan->kernels.emplace_back() : *kernel;
      to.uses.push_back(i);
      to.sums |= sums;
    }
  }

  static uint32_t FirstOf(const RegionPlan& plan, uint64_t sums) {
    return plan.region.sums[static_cast<size_t>(std::countr_zero(sums))];
  }

  // Each node that is computed between cuts has one sum of products at most.
  void Cut(const RegionPlan& plan, RowKernel* kernel) const {
    for (const size_t i : kernel->uses) {
      const RegionUse& use = plan.region.uses[i];
      absl::flat_hash_map<uint32_t, uint64_t> sums;
      const auto above = [&](uint32_t id) {
        const auto it = sums.find(id);
        return it == sums.end() || kernel->cuts.contains(id) ? 0 : it->second;
      };
      for (const uint32_t id : plan.region.nodes) {
        if (!use.access.contains(id)) continue;
        const bool is_sum = std::ranges::find(plan.region.sums, id) != plan.region.sums.end();
        uint64_t all = is_sum ? plan.sums.at(id) : 0;
        if (!is_sum) {
          for (const uint32_t s : graph_.src(id)) all |= above(s);
          const uint64_t last = std::bit_floor(all);
          for (const uint32_t s : graph_.src(id)) {
            if (above(s) != 0 && above(s) != last) kernel->cuts.insert(s);
          }
          all = last;
        }
        sums[id] = all;
      }
      for (const uint32_t id : LastOf(use)) {
        if (use.product || above(id) != 0) kernel->cuts.insert(id);
      }
    }
  }

  // What is kept last of a use: the value or, where products are added up, which fused
  // multiply-adds do not round, their factors. So a sum has the same bits whether its terms are
  // kept or not.
  std::vector<uint32_t> LastOf(const RegionUse& use) const {
    UOp value = graph_.at(use.value);
    while (Is(value.op(), kMovement) || value.is(Op::kDetach)) value = value.src(0);
    const bool adds = graph_.at(use.reduce).reduce_kind() == ReduceKind::kAdd;
    if (use.product || !adds || !value.is(Op::kMul)) return {use.value};
    std::vector<uint32_t> factors;
    std::ranges::copy_if(value.src_ids(), std::back_inserter(factors),
                         [&](uint32_t id) { return use.access.contains(id); });
    return factors;
  }

  // Several uses are of several kernels where one would keep too much.
  void SplitKernels(RegionPlan* plan) const {
    for (size_t k = 0; k < plan->kernels.size(); ++k) {
      const std::vector<size_t> uses = plan->kernels[k].uses;
      const bool fits = std::ranges::all_of(uses, [&](size_t i) {
        return FitsPrivately(plan->region.uses[i], plan->kernels[k].cuts.size());
      });
      if (fits || uses.size() == 1 || !plan->region.uses[uses.front()].product) continue;
      plan->kernels[k] = {};
      for (const size_t i : uses) {
        RowKernel single{{i}, {}, plan->sums.at(plan->region.uses[i].value)};
        Cut(*plan, &single);
        if (i == uses.front()) {
          plan->kernels[k] = std::move(single);
        } else {
          plan->kernels.push_back(std::move(single));
        }
      }
    }
  }

  // Whether one kernel computes all values, but others, or others of its own values, need the
  // maxima or sums of its rows.
  bool HasSharedStatistics(const RegionPlan& plan) const {
    return plan.whole >= 0 && std::ranges::any_of(plan.stored, [&](size_t use) {
             return users_[plan.region.uses[use].reduce] > 1;
           });
  }

  double TermsOf(const RegionPlan& plan, uint64_t sums) const {
    double terms = 0;
    for (; sums != 0; sums &= sums - 1) {
      const UOp sum = graph_.at(plan.region.sums[static_cast<size_t>(std::countr_zero(sums))]);
      terms += static_cast<double>(NumElements(sum.shape())) * FoldedExtent(sum);
    }
    return terms;
  }

  bool PaysOff(const RegionPlan& plan) const {
    const uint64_t all = (uint64_t{1} << plan.region.sums.size()) - 1;
    double terms = TermsOf(plan, plan.whole_sums) - TermsOf(plan, all);
    absl::flat_hash_set<uint32_t> kept;  // that would be in memory otherwise
    bool products = false;
    for (const RowKernel& kernel : plan.kernels) {
      terms += TermsOf(plan, kernel.sums);
      for (const size_t i : kernel.uses) {
        const RegionUse& use = plan.region.uses[i];
        if (!FitsPrivately(use, kernel.cuts.size())) return false;
        if (!use.product) continue;
        products = true;
        for (const uint32_t cut : kernel.cuts) kept.insert(cut);
      }
    }
    double bytes = 0;
    for (const uint32_t id : kept) {
      bytes += static_cast<double>(BytesOf(graph_.dtype(id), NumElements(graph_.shape(id))));
    }
    return products && terms * costs_.product_term <= bytes * costs_.rows_byte;
  }

  bool FitsPrivately(const RegionUse& use, size_t cuts) const {
    const Access& access = use.access.at(use.value);
    const ShapeView shape = graph_.shape(use.value);
    auto row = static_cast<double>(ByteSize(graph_.dtype(use.value)));
    for (size_t i = 0; i < shape.size(); ++i) {
      if ((access.axes[i].ranges & use.reduced) != 0) row *= static_cast<double>(shape[i]);
    }
    return row * static_cast<double>(costs_.least_rows) *
               static_cast<double>(std::max<size_t>(cuts, 2)) <=
           private_;
  }

  const Graph& graph_;
  const ScheduleCosts& costs_;
  const double private_;
  const bool row_blocks_;
  std::vector<int> users_;  // by node
};

class Rebuilder {
 public:
  Rebuilder(const Graph& from, std::vector<RegionPlan> plans)
      : from_(from),
        plans_(std::move(plans)),
        out_(std::make_shared<Graph>()),
        made_(from),
        again_(from) {}

  absl::StatusOr<RecomputedRows> Run(UOp sink, std::span<const uint32_t> order, Budget* budget) {
    absl::flat_hash_set<uint32_t> in_region;
    for (size_t p = 0; p < plans_.size(); ++p) {
      in_region.insert(plans_[p].region.nodes.begin(), plans_[p].region.nodes.end());
      for (size_t k = 0; k < plans_[p].kernels.size(); ++k) {
        kernels_.push_back({p, k, {}});
        for (const size_t use : plans_[p].kernels[k].uses) {
          kernel_of_[plans_[p].region.uses[use].reduce] = {kernels_.size() - 1, use};
        }
      }
      if (plans_[p].whole >= 0) {
        whole_.emplace(UseOf(plans_[p], plans_[p].whole).reduce, p);
        for (const size_t use : plans_[p].stored) {
          stored_.insert(plans_[p].region.uses[use].reduce);
        }
      }
    }
    const std::vector<bool> needed = NeededBy(in_region, order);
    for (const uint32_t id : order) {
      TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(from_.src(id).size())));
      const bool own = needed[id] || whole_.contains(id) || kernel_of_.contains(id);
      made_[id] = Copy(from_.at(id), own ? made_ : again_).id();
      const bool again = !in_region.contains(id) && !whole_.contains(id);
      again_[id] = again ? Copy(from_.at(id), again_).id() : made_[id];
      if (stored_.contains(id)) {
        again_[id] = out_->Make(Op::kContiguous, {out_->at(made_[id])}).id();
        fused_.insert(made_[id]);
        statistics_.insert(again_[id]);
      }
      if (const auto it = whole_.find(id); it != whole_.end()) {
        const RegionPlan& plan = plans_[it->second];
        for (const auto& [node, access] : UseOf(plan, plan.whole).access) {
          blocks_.insert(made_[node]);
        }
      }
      if (const auto it = kernel_of_.find(id); it != kernel_of_.end()) {
        TG_RETURN_IF_ERROR(Own(it->second.first, it->second.second, budget));
      }
      TG_RETURN_IF_ERROR(out_->status());
    }
    return RecomputedRows{{out_, made_[sink.id()]},
                          std::move(rows_),
                          std::move(blocks_),
                          std::move(fused_),
                          std::move(statistics_)};
  }

 private:
  struct Kernel {
    size_t plan, kernel;
    absl::flat_hash_map<uint32_t, UOp> made;  // nodes of the region
  };

  // The nodes of regions, and those that they are computed from.
  std::vector<bool> NeededBy(const absl::flat_hash_set<uint32_t>& region,
                             std::span<const uint32_t> order) const {
    std::vector<bool> needed(from_.size(), false);
    for (size_t i = order.size(); i-- > 0;) {
      const uint32_t id = order[i];
      if (!needed[id] && !region.contains(id)) continue;
      needed[id] = true;
      for (const uint32_t s : from_.src(id)) needed[s] = true;
    }
    return needed;
  }

  static const RegionUse& UseOf(const RegionPlan& plan, int use) {
    return plan.region.uses[static_cast<size_t>(use)];
  }

  UOp Copy(UOp u, const NodeMap<uint32_t>& made) {
    std::vector<UOp> src;
    for (const uint32_t s : u.src_ids()) src.push_back(out_->at(made.at(s)));
    return MakeLike(u, src);
  }
  UOp MakeLike(UOp u, const std::vector<UOp>& src) {
    return out_->Make(u.op(), u.dtype(), src, std::vector<int64_t>(u.arg().begin(), u.arg().end()));
  }

  // Makes a reduction of a kernel, with its part of the region.
  absl::Status Own(size_t number, size_t which, Budget* budget) {
    Kernel& kernel = kernels_[number];
    const RegionPlan& plan = plans_[kernel.plan];
    const RegionUse& use = plan.region.uses[which];
    for (const uint32_t id : plan.region.nodes) {
      if (!use.access.contains(id) || kernel.made.contains(id)) continue;
      TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(from_.src(id).size())));
      UOp value = ValueOf(from_.at(id), plan, kernel, number);
      const absl::flat_hash_set<uint32_t>& cuts = plan.kernels[kernel.kernel].cuts;
      if (cuts.contains(id)) {
        value = Cut(value, use.access.at(id), use, static_cast<int>(cuts.size()));
      }
      kernel.made.emplace(id, value);
    }
    const UOp reduce = from_.at(use.reduce);
    const UOp value = kernel.made.at(use.value);
    if (use.product) {
      const UOp result = InLoopOrder(MakeLike(reduce, {Term(reduce.src(0), use, value)}), use);
      made_[use.reduce] = again_[use.reduce] = result.id();
      return absl::OkStatus();
    }
    const UOp result = out_->Make(Op::kContiguous, {MakeLike(reduce, {value})});
    again_[use.reduce] = result.id();
    // What computes rows as they were has their maxima and sums as they were.
    if ((plan.sums.at(use.value) & ~plan.whole_sums) != 0) made_[use.reduce] = result.id();
    return absl::OkStatus();
  }

  UOp ValueOf(UOp u, const RegionPlan& plan, const Kernel& kernel, size_t number) {
    if (std::ranges::find(plan.region.sums, u.id()) != plan.region.sums.end()) {
      const UOp term = u.src(0);
      UOp x = out_->at(again_[term.src(0).id()]);
      for (size_t i = 0; i <= number; ++i) x = out_->Make(Op::kDetach, {x});
      return MakeLike(u, {MakeLike(term, {x, out_->at(again_[term.src(1).id()])})});
    }
    std::vector<UOp> src;
    for (const uint32_t s : u.src_ids()) {
      const auto it = kernel.made.find(s);
      src.push_back(it == kernel.made.end() ? out_->at(again_[s]) : it->second);
    }
    return MakeLike(u, src);
  }

  // In the order of the axes' ranges, with those last that are said to be; size 1 comes first.
  // `rows` is how many values are kept so, or 0: then it is only stored in that order.
  UOp Stored(UOp x, const std::vector<std::pair<int, bool>>& axes, int rows) {
    std::vector<int64_t> there(axes.size()), back(axes.size());
    std::iota(there.begin(), there.end(), 0);
    std::ranges::stable_sort(there, [&](int64_t a, int64_t b) {
      const auto [of_a, last_a] = axes[static_cast<size_t>(a)];
      const auto [of_b, last_b] = axes[static_cast<size_t>(b)];
      return std::pair(last_a, of_a) < std::pair(last_b, of_b);
    });
    for (size_t i = 0; i < there.size(); ++i) {
      back[static_cast<size_t>(there[i])] = static_cast<int64_t>(i);
    }
    const bool as_is = std::ranges::is_sorted(there);
    if (as_is && rows == 0) return x;
    const UOp moved = as_is ? x : out_->Make(Op::kPermute, DType::kVoid, std::vector{x}, there);
    const UOp stored = out_->Make(Op::kContiguous, {moved});
    const auto loops = std::ranges::count_if(
        axes, [](const auto& axis) { return axis.first >= 0 && !axis.second; });
    if (rows > 0) rows_.emplace(stored.id(), KeptRows{rows, static_cast<int>(loops)});
    return as_is ? stored : out_->Make(Op::kPermute, DType::kVoid, std::vector{stored}, back);
  }

  UOp Cut(UOp x, const Access& access, const RegionUse& use, int values) {
    std::vector<std::pair<int, bool>> axes;  // the range, and whether it is reduced
    for (const AxisUse& axis : access.axes) {
      const int range = axis.ranges == 0 ? -1 : std::countr_zero(axis.ranges);
      axes.emplace_back(range, (axis.ranges & use.reduced) != 0);
    }
    return Stored(x, axes, values);
  }

  // A sum with the loops first that its rows have.
  UOp InLoopOrder(UOp sum, const RegionUse& use) {
    const RangeSet of_rows = use.access.at(use.value).ranges();
    const ShapeView from = from_.shape(from_.src(use.reduce)[0]);
    std::vector<std::pair<int, bool>> axes;
    int range = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      const bool loop = sum.shape()[i] != 1;
      axes.emplace_back(loop ? range : -1, loop && (of_rows >> range & 1) == 0);
      if (from[i] != 1) ++range;
    }
    return Stored(sum, axes, 0);
  }

  // A product of a sum's terms, of which one factor is a view of `value`.
  UOp Term(UOp term, const RegionUse& use, UOp value) {
    std::vector<UOp> src;
    for (int i = 0; i < 2; ++i) {
      std::vector<UOp> views;
      UOp below = term.src(i);
      while (below.id() != use.value && (Is(below.op(), kMovement) || below.is(Op::kDetach))) {
        views.push_back(below);
        below = below.src(0);
      }
      if (below.id() != use.value) {
        src.push_back(out_->at(again_[term.src(i).id()]));
        continue;
      }
      UOp x = value;
      for (size_t v = views.size(); v-- > 0;) x = MakeLike(views[v], {x});
      src.push_back(x);
    }
    return MakeLike(term, src);
  }

  const Graph& from_;
  const std::vector<RegionPlan> plans_;
  std::shared_ptr<Graph> out_;
  NodeMap<uint32_t> made_;  // for what is left as it was
  NodeMap<uint32_t>
      again_;  // for parts of regions: with the maxima and sums that are made for them
  std::vector<Kernel> kernels_;
  absl::flat_hash_map<uint32_t, std::pair<size_t, size_t>> kernel_of_;  // by REDUCE: and the use
  absl::flat_hash_map<uint32_t, size_t> whole_;                         // by REDUCE: the plan
  absl::flat_hash_set<uint32_t> stored_;                                // REDUCEs
  absl::flat_hash_map<uint32_t, KeptRows> rows_;
  absl::flat_hash_set<uint32_t> blocks_, fused_, statistics_;
};

}  // namespace

absl::StatusOr<RecomputedRows> RecomputeRows(FrozenGraph graph, const ScheduleCosts& costs,
                                             int64_t private_bytes, bool row_blocks,
                                             RowStatistics statistics, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  const RegionPlanner planner(from, order, costs, static_cast<double>(private_bytes), row_blocks);
  std::vector<RegionPlan> plans;
  for (RowRegion& region : FindRowRegions(from, order, costs)) {
    TG_RETURN_IF_ERROR(
        budget->SpendSteps(static_cast<int64_t>(region.nodes.size() * (1 + region.uses.size()))));
    RegionPlan plan{.region = std::move(region)};
    if (planner.Plan(&plan, statistics)) plans.push_back(std::move(plan));
  }
  if (plans.empty()) return RecomputedRows{std::move(graph), {}, {}, {}, {}};
  return Rebuilder(from, std::move(plans)).Run(graph.root(), order, budget);
}

}  // namespace telegrad
