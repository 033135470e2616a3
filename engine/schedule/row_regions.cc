// A region begins with sums of products that have more elements than each of their operands, and
// goes on through elementwise operations and views that neither repeat nor leave out elements. It
// ends with reductions. Of a sum of products one factor is a view of the value that repeats it,
// and the other factor is no value of a region.
#include "engine/schedule/row_regions.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/schedule/cost.h"
#include "engine/schedule/drafts.h"
#include "engine/schedule/exact_values.h"

namespace telegrad {
namespace {

bool KeepsElements(UOp u) {
  return u.is(Op::kReshape) || u.is(Op::kPermute) || u.is(Op::kDetach) ||
         (u.is(Op::kExpand) && NumElements(u.shape()) == NumElements(u.src(0).shape()));
}

// Of what the views of a factor repeat.
int64_t ElementsOf(UOp factor) {
  int64_t elements = NumElements(factor.shape());
  while (Is(factor.op(), kMovement) || factor.is(Op::kDetach)) {
    factor = factor.src(0);
    elements = std::min(elements, NumElements(factor.shape()));
  }
  return elements;
}

// The axes of what a REDUCE reduces, as the ranges of LoopAccess.
RangeSet ReducedRanges(UOp reduce) {
  const ShapeView shape = reduce.src(0).shape();
  const std::span<const int64_t> axes = reduce.reduced_axes();
  RangeSet reduced = 0;
  int range = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool is = std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end();
    if (is) reduced |= RangeSet{1} << range;
    ++range;
  }
  return reduced;
}

class RegionFinder {
 public:
  RegionFinder(const Graph& graph, std::span<const uint32_t> order, const ScheduleCosts& costs)
      : graph_(graph), order_(order), costs_(costs), nodes_(graph.size()) {}

  std::vector<RowRegion> Run() {
    const std::vector<bool> exact = ExactValues(graph_, {order_.begin(), order_.end()});
    for (const uint32_t id : order_) {
      Visit(graph_.at(id));
      if (nodes_[id].part == Part::kValue && exact[id]) End(id);
    }
    absl::flat_hash_map<uint32_t, RowRegion> found;  // by the first sum
    for (const uint32_t id : order_) {
      if (nodes_[id].part != Part::kValue) continue;
      const uint32_t region = Find(id);
      if (nodes_[region].ended) continue;
      RowRegion& of = found[region];
      of.nodes.push_back(id);
      if (IsSum(graph_.at(id))) of.sums.push_back(id);
    }
    for (RegionUse& use : uses_) {
      const auto it = found.find(Find(use.value));
      if (it != found.end()) it->second.uses.push_back(std::move(use));
    }
    std::vector<RowRegion> regions;
    for (const uint32_t id : order_) {
      const auto it = found.find(id);
      if (it == found.end() || !FindAccess(&it->second)) continue;
      if (std::ranges::none_of(it->second.uses, &RegionUse::product)) continue;
      regions.push_back(std::move(it->second));
    }
    return regions;
  }

 private:
  enum class Part : uint8_t {
    kOther,
    kValue,  // of a region
    kView,   // of such a value, which it repeats
    kTerm,   // a product of that with another value
  };
  struct Node {
    Part part = Part::kOther;
    bool ended = false;   // of a region: it has another use
    uint32_t region = 0;  // joined with, or itself
    uint32_t value = 0;   // that is viewed
  };

  bool IsSum(UOp u) const {
    if (!u.is(Op::kReduce) || !IsMatrixProduct(u, costs_.tile)) return false;
    const UOp product = u.src(0);
    if (!product.is(Op::kMul) || !IsFloat(u.dtype())) return false;
    const int64_t elements = NumElements(u.shape());
    return std::ranges::all_of(product.src_ids(), [&](uint32_t factor) {
      return ElementsOf(graph_.at(factor)) < elements;
    });
  }

  uint32_t Find(uint32_t id) const {
    while (nodes_[id].region != id) id = nodes_[id].region;
    return id;
  }
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    if (a == b) return;
    if (b < a) std::swap(a, b);
    nodes_[b].region = a;
    nodes_[a].ended |= nodes_[b].ended;
  }
  void End(uint32_t id) { nodes_[Find(id)].ended = true; }
  void EndOf(uint32_t source) {
    const Node& node = nodes_[source];
    if (node.part != Part::kOther) End(node.part == Part::kValue ? source : node.value);
  }

  void Visit(UOp u) {
    Node& node = nodes_[u.id()];
    node.region = u.id();
    const auto part = [&](int i) { return nodes_[u.src(i).id()].part; };
    int of_region = 0;
    for (int i = 0; i < u.num_src(); ++i) of_region += part(i) == Part::kOther ? 0 : 1;
    if (u.is(Op::kReduce) && part(0) != Part::kOther) {
      const Part reduced = part(0);
      const bool sum = u.reduce_kind() == ReduceKind::kAdd;
      if (reduced == Part::kView || (reduced == Part::kTerm && !sum)) return EndOf(u.src(0).id());
      const uint32_t value = reduced == Part::kTerm ? nodes_[u.src(0).id()].value : u.src(0).id();
      uses_.push_back({.reduce = u.id(),
                       .value = value,
                       .product = reduced == Part::kTerm,
                       .reduced = ReducedRanges(u)});
      of_region = 0;
    }
    if (IsSum(u)) {
      if (!uses_.empty() && uses_.back().reduce == u.id()) End(uses_.back().value);
      node.part = Part::kValue;
      return;
    }
    if (of_region == 0) return;
    const bool movement = Is(u.op(), kMovement) || u.is(Op::kDetach);
    if (of_region == 1 && u.is(Op::kMul)) {
      const int view = part(0) == Part::kView ? 0 : 1;
      if (part(view) == Part::kView) {
        node.part = Part::kTerm;
        node.value = nodes_[u.src(view).id()].value;
        return;
      }
    }
    if (movement && part(0) == Part::kView && !u.is(Op::kPad) && !u.is(Op::kShrink)) {
      node.part = Part::kView;
      node.value = nodes_[u.src(0).id()].value;
      return;
    }
    if (u.is(Op::kExpand) && part(0) == Part::kValue && !KeepsElements(u)) {
      node.part = Part::kView;
      node.value = u.src(0).id();
      return;
    }
    const bool elementwise = Is(u.op(), kAlu) || KeepsElements(u);
    bool values = elementwise && !IsInt(u.dtype());
    for (int i = 0; i < u.num_src(); ++i) {
      values &= part(i) == Part::kOther || part(i) == Part::kValue;
      values &= part(i) == Part::kOther || NumElements(u.src(i).shape()) == NumElements(u.shape());
    }
    for (int i = 0; i < u.num_src(); ++i) {
      if (part(i) == Part::kOther) continue;
      if (!values) {
        EndOf(u.src(i).id());
        continue;
      }
      node.part = Part::kValue;
      Join(u.src(i).id(), u.id());
    }
  }

  // Where each use reads the values; false: some value at several places, or not along its axes.
  bool FindAccess(RowRegion* region) const {
    for (RegionUse& use : region->uses) {
      const UOp reduce = graph_.at(use.reduce);
      Access access = LoopAccess(reduce.src(0).shape());
      if (use.product) {
        const UOp term = reduce.src(0);
        UOp view = nodes_[term.src(0).id()].part == Part::kView ? term.src(0) : term.src(1);
        for (; view.id() != use.value; view = view.src(0)) {
          if (!view.is(Op::kDetach)) access = AccessSource(view, access);
        }
      }
      use.access[use.value] = access;
      for (auto it = region->nodes.rbegin(); it != region->nodes.rend(); ++it) {
        const auto at = use.access.find(*it);
        if (at == use.access.end()) continue;
        const Access here = at->second;
        const UOp u = graph_.at(*it);
        if (!IsPermutation(u, here, reduce.src(0).shape())) return false;
        if (IsSum(u)) continue;
        for (const uint32_t s : u.src_ids()) {
          if (nodes_[s].part != Part::kValue) continue;
          const Access below = Is(u.op(), kMovement) ? AccessSource(u, here) : here;
          const auto [known, added] = use.access.try_emplace(s, below);
          if (!added && known->second != below) return false;
        }
      }
    }
    return true;
  }

  // Whether each axis of the value is one range.
  static bool IsPermutation(UOp u, const Access& access, ShapeView ranges) {
    if (access.gate != 0) return false;
    std::vector<int64_t> sizes;
    std::ranges::copy_if(ranges, std::back_inserter(sizes), [](int64_t n) { return n != 1; });
    RangeSet seen = 0;
    for (size_t i = 0; i < u.shape().size(); ++i) {
      if (u.shape()[i] == 1) continue;
      const RangeSet range = access.axes[i].ranges;
      if (std::popcount(range) != 1 || (seen & range) != 0) return false;
      if (sizes[static_cast<size_t>(std::countr_zero(range))] != u.shape()[i]) return false;
      seen |= range;
    }
    return true;
  }

  const Graph& graph_;
  const std::span<const uint32_t> order_;
  const ScheduleCosts& costs_;
  std::vector<Node> nodes_;
  std::vector<RegionUse> uses_;
};

}  // namespace

std::vector<RowRegion> FindRowRegions(const Graph& graph, std::span<const uint32_t> order,
                                      const ScheduleCosts& costs) {
  return RegionFinder(graph, order, costs).Run();
}

}  // namespace telegrad
