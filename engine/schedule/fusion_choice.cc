// Whether one value is stored, and by which kernel.
//
// A reduction is one value more. Hoisted out of the loops that it does not depend on it costs what
// it would cost alone, so it stays in its user's kernel unless that would take its parallelism or,
// if it is a sum of products, its register tile away.
#include <algorithm>
#include <cmath>

#include "engine/schedule/fusion_planner.h"

namespace telegrad {
namespace {

constexpr size_t kMaxRecomputedUses = 16;  // where one value is recomputed
constexpr size_t kMaxUsers = 64;           // that a value may have and share a kernel with one
constexpr int kMaxFolds = 4;               // reductions that one holds inside of each other
constexpr size_t kMostOfTerm = 64;         // nodes of a term that are looked at
// Of the bytes that pass between two nests through the cache of a thread, those of a row that is
// near: longer ones, with what else the nests read of such rows, leave a core's caches.
constexpr double kNearShare = 0.5;
// Positions of nodes in a kernel. Bounds what the compiler is asked to do at once.
constexpr int64_t kMaxKernelNodes = 1000;

std::string Ratio(double x) {
  return StrCat(std::min(x, 1e9) < 10 ? std::round(x * 10) / 10 : std::round(std::min(x, 1e9)));
}

std::string Scaled(double x) {
  static constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  for (; x >= 1000 && unit + 1 < std::size(kUnits); x /= 1000) ++unit;
  return StrCat(std::round(x * 10) / 10, kUnits[unit]);
}

bool SameLoops(const Draft& draft, ShapeView shape) {
  int loop = 0;
  for (int64_t n : shape) {
    if (n == 1) continue;
    if (loop >= draft.loops || draft.ranges[loop].size != static_cast<double>(n)) return false;
    ++loop;
  }
  return loop == draft.loops;
}

}  // namespace

Materialize FusionPlanner::Choose(UOp u, const std::vector<KernelUse>& uses,
                                  std::string* why) const {
  const uint32_t id = u.id();
  if (u.is(Op::kContiguous)) {
    if (uses.size() == 1 && Home(u, uses) >= 0) return Materialize::kFused;
    *why = "stored on request";
    return Materialize::kRequested;
  }
  // A view is stored through its source.
  if (Is(u.op(), kMovement) || u.is(Op::kDetach)) return Materialize::kFused;
  if (options_.fused.contains(id)) return Materialize::kFused;
  if (exact_[id] && uses.size() > 1) {
    *why = "stored: it is compared with itself, which needs the same bits in every place";
    return Materialize::kExact;
  }
  for (const KernelUse& use : uses) {
    const Draft& draft = drafts_[use.draft];
    const size_t folds = u.is(Op::kReduce) ? u.arg().size() - 1 : 0;
    const bool many = folds > 0 && draft.loops + draft.folds + folds > Drafts::kMaxRanges;
    const bool deep = folds > 0 && use.folds >= kMaxFolds;
    if (draft.nodes > kMaxKernelNodes || many || deep) {
      *why = StrCat("stored: its user's kernel has ", draft.nodes, " nodes and ",
                    draft.loops + draft.folds, " ranges already");
      return Materialize::kSize;
    }
  }
  const auto elements = static_cast<double>(NumElements(u.shape()));
  // What repeats or pads the result of a sum of products is stored through that.
  const NodeCost& cost = costs_[id];
  if (cost.contraction != 0 && cost.contraction_elements < elements &&
      uses.size() <= kMaxRecomputedUses) {
    return Materialize::kFused;
  }
  for (const KernelUse& use : uses) {
    if (!Fits(u, use, why)) return Materialize::kReduction;
  }
  double computed = 0, loaded = 0;
  for (const KernelUse& use : uses) {
    const Draft& draft = drafts_[use.draft];
    const double count = draft.Count(use.access.ranges());
    // Recomputed operands of a sum of products are used again from registers: by the iterations of
    // a tile that do not change them, of which a depthwise convolution's image has none.
    const double again = draft.Product(draft.Around(use.access.ranges()) & ~use.access.ranges());
    const double reuse = use.tiled ? std::min(static_cast<double>(options_.costs.tile), again) : 1;
    loaded += count / reuse;
    computed += std::max(std::min(count, elements), count / reuse);
  }
  // A reduction among the terms of a sum of products, as a pool before a convolution, is computed
  // without the lanes of the product's tile.
  const bool among_terms =
      u.is(Op::kReduce) && cost.contraction == 0 &&
      std::ranges::any_of(uses, [&](const KernelUse& use) {
        return use.tiled && (use.access.ranges() & ~drafts_[use.draft].LoopSet()) != 0;
      });
  if (computed <= elements && !among_terms) return Materialize::kFused;
  const double work = costs_[id].work;
  // What a few operations make of positions, such as a mask, is nearer than any memory. Where a run
  // gives one of them, it is seen everywhere: lowering ends loops by it. One element is a constant.
  if (!cost.reads && work <= options_.costs.near &&
      (cost.given || elements == 1 || uses.size() <= kMaxRecomputedUses)) {
    return Materialize::kFused;
  }
  const auto bytes = static_cast<double>(BytesOf(u.dtype(), 1));
  const ScheduleCosts& costs = options_.costs;
  const bool inner = u.is(Op::kReduce) &&
                     std::ranges::any_of(uses, [](const KernelUse& use) { return use.tiled; });
  double redone = (computed - elements) * work * (inner ? costs.inner_reduction : 1);
  if (among_terms) redone = (computed * costs.scalar_reduction - elements) * work;
  if (IsScalarTerm(u, uses)) redone = (computed * costs.scalar_term - elements) * work;
  const double kept = bytes * (elements * costs.near_store_byte + loaded * costs.near_load_byte);
  if (redone > kept && MayBeNear(u, uses)) {
    *why = StrCat("kept: ", uses.size(), " uses compute it ", Ratio(computed / elements),
                  " times; redoing that costs ", Scaled(redone), " operations, a row at hand ",
                  Scaled(kept));
    return Materialize::kNear;
  }
  const double moved = bytes * (elements * costs.store_byte + loaded * costs.load_byte);
  const double launch = Home(u, uses) >= 0 ? 0 : costs.launch;
  if (redone <= moved + launch && uses.size() <= kMaxRecomputedUses) return Materialize::kFused;
  *why = StrCat("stored: ", uses.size(), uses.size() == 1 ? " use computes" : " uses compute",
                " it ", Ratio(computed / elements), " times; redoing that costs ", Scaled(redone),
                " operations, memory ", Scaled(moved + launch));
  return Materialize::kCost;
}

// As the exponentials of a softmax: one use is the loops of the kernel, the others are reductions
// along the rows that the outermost loops walk over.
bool FusionPlanner::MayBeNear(UOp u, const std::vector<KernelUse>& uses) const {
  const ScheduleCosts& costs = options_.costs;
  if (options_.private_bytes == 0 || !options_.near_rows || !options_.rows.empty()) return false;
  if (u.is(Op::kReduce) || far_.contains(u.id())) return false;
  // The nest that fills a row computes all of it, also where the run uses its beginning alone.
  if (costs_[u.id()].given || costs_[u.id()].varies) return false;
  const Draft& draft = drafts_[uses.front().draft];
  if (uses.size() < 2 || draft.contraction != 0 || costs_[u.id()].contraction != 0) return false;
  if (drafts_.Alone(draft) || drafts_.Apart(draft) || !SameLoops(draft, u.shape())) return false;
  bool whole = false;
  for (const KernelUse& use : uses) {
    if (use.draft != uses.front().draft || use.tiled || use.access.gate != 0) return false;
    whole |= use.access == LoopAccess(u.shape());
  }
  double rows = 1;
  for (size_t axis = 0, loop = 0; axis < u.shape().size(); ++axis) {
    if (u.shape()[axis] == 1) continue;
    const AxisUse own{draft.ranges[loop].hash, RangeSet{1} << loop};
    const bool same = std::ranges::all_of(
        uses, [&](const KernelUse& use) { return use.access.axes[axis] == own; });
    if (!same) break;
    rows *= draft.ranges[loop++].size;
  }
  const auto bytes = static_cast<double>(BytesOf(u.dtype(), NumElements(u.shape())));
  return whole && rows >= std::max(costs.shared, costs.busy) &&
         bytes <= rows * std::min(kNearShare * costs.slice_bytes,
                                  static_cast<double>(options_.private_bytes));
}

// Whether nothing but tiles of sums of products computes it, for all of their lanes at once, and
// one element takes as long as all lanes of a product do: what all iterations of a loop read, and
// is no weight, which is computed once for many runs.
bool FusionPlanner::IsScalarTerm(UOp u, const std::vector<KernelUse>& uses) const {
  const bool shared = std::ranges::any_of(uses, [&](const KernelUse& use) {
    const Draft& draft = drafts_[use.draft];
    const RangeSet set = use.access.ranges();
    return (set & ~draft.LoopSet()) != 0 &&
           draft.Product(draft.LoopSet() & ~set) >= static_cast<double>(options_.costs.tile);
  });
  const bool tiled = std::ranges::all_of(uses, [](const KernelUse& use) { return use.tiled; });
  if (!shared || !tiled || u.is(Op::kReduce)) return false;
  std::vector<uint32_t> left{u.id()};
  for (size_t i = 0; i < left.size() && left.size() < kMostOfTerm; ++i) {
    const UOp v = graph_.at(left[i]);
    if (v.is(Op::kReduce)) return true;
    for (const uint32_t s : v.src_ids()) {
      if (std::ranges::find(left, s) == left.end()) left.push_back(s);
    }
  }
  return false;
}

bool FusionPlanner::Fits(UOp u, const KernelUse& use, std::string* why) const {
  const NodeCost& cost = costs_[u.id()];
  const Draft& draft = drafts_[use.draft];
  const RangeSet set = use.access.ranges(), loops = set & draft.LoopSet();
  const bool folded = (set & ~draft.LoopSet()) != 0;
  if (cost.contraction != 0 && (folded || loops != draft.LoopSet())) {
    const auto elements = static_cast<double>(NumElements(u.shape()));
    if (elements * cost.work > options_.costs.spread) {
      *why = folded ? "stored: its sum of products would run inside another reduction"
                    : "stored: its sum of products would lose its tile to other loops";
      return false;
    }
  }
  if (!u.is(Op::kReduce)) return true;
  if (options_.one_product && draft.product != 0 && draft.product != u.id() &&
      IsMatrixProduct(u, options_.costs.tile)) {
    *why = "stored: its user's kernel computes another product, and tiles are of one";
    return false;
  }
  for (RangeSet front : draft.fronts) {
    if ((loops & ~front) != 0 && (front & ~loops) != 0) {
      *why = "stored: no order of its user's loops suits all of its reductions";
      return false;
    }
  }
  const bool serial =
      draft.Product(loops) < options_.costs.busy && (folded || loops != draft.LoopSet());
  if (serial && draft.Count(set) * cost.work > options_.costs.spread) {
    *why = "stored: inside its user too few threads could share it";
    return false;
  }
  return true;
}

int FusionPlanner::Home(UOp u, const std::vector<KernelUse>& uses) const {
  const bool own = options_.alone.contains(u.id()) || options_.rows.contains(u.id()) ||
                   options_.apart.contains(u.id());
  if (own || uses.size() > kMaxUsers) return -1;
  for (const KernelUse& use : uses) {
    const Draft& draft = drafts_[use.draft];
    const auto same = [&](const KernelUse& q) { return q.draft == use.draft; };
    if (drafts_.Alone(draft) || drafts_.Apart(draft) || draft.roots.size() >= Drafts::kMaxRoots)
      continue;
    const uint32_t product = costs_[u.id()].contraction;
    const bool another = product != 0 && draft.product != 0 && product != draft.product;
    if (options_.one_product && another) continue;
    if (std::ranges::count_if(uses, same) != 1 || use.access.gate != 0) continue;
    if (use.access.ranges() != draft.LoopSet() || use.access != LoopAccess(u.shape())) continue;
    if (!SameLoops(draft, u.shape())) continue;
    const bool first = std::ranges::none_of(uses, [&](const KernelUse& q) {
      return q.draft != use.draft && drafts_.HasPath(q.draft, use.draft);
    });
    if (first) return use.draft;
  }
  return -1;
}

uint32_t FusionPlanner::WholeOutput(UOp u, const Draft& draft) const {
  for (uint32_t root : draft.roots) {
    UOp target = graph_.at(root);
    if (!target.is(Op::kStore)) continue;
    UOp value = target.src(1);
    target = target.src(0);
    // A SCATTER writes by row-major position: other dims are as good.
    while (u.is(Op::kScatter) && value.is(Op::kReshape)) value = value.src(0);
    bool whole = value == u && NumElements(target.shape()) == NumElements(u.shape());
    const bool same = u.is(Op::kScatter) || std::ranges::equal(target.shape(), u.shape());
    while (whole && target.is(Op::kReshape)) {
      whole = uses_[target.id()] == 1;
      target = target.src(0);
    }
    if (whole && same && target.is(Op::kParam) && uses_[target.id()] == 1) return root;
  }
  return 0;
}

}  // namespace telegrad
