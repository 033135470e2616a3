// A node belongs to the work of each REDUCE or STORE that reaches it without passing another
// REDUCE. What it does not share with the ranges that the work reduces is done before that loop and
// is left out.
#include "engine/lowering/kernel_shape.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/checked.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/workgroup.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

double CostOf(UOp u, const ThreadCosts& costs) {
  if (u.is(Op::kFDiv) || u.is(Op::kRecip) || u.is(Op::kSqrt)) return costs.division;
  return u.is(Op::kMulAcc) ? 1 : ByteSize(u.dtype()) == 8 ? costs.wide : 1;
}

class ShapeReader {
 public:
  ShapeReader(UOp sink, Dependence d, const ThreadCosts& costs,
              std::span<const Program::Argument> arguments)
      : g_(*sink.graph()),
        sink_(sink),
        order_(PostOrder(sink)),
        costs_(costs),
        arguments_(arguments) {
    shape_.d = std::move(d);
  }

  std::optional<KernelShape> Run() {
    for (UOp range : shape_.d.ranges) {
      shape_.size.push_back(SizeOf(range));
      shape_.threads |= IsThreads(range);
      if (!range.src(0).is_const()) shape_.whole |= Bit(shape_.d.IndexOf(range));
      if (range.axis_type() == AxisType::kLoop) {
        shape_.loops |= Bit(shape_.d.IndexOf(range));
      }
    }
    shape_.nodes = order_.size();
    strides_.resize(shape_.size.size());
    FindOuter();
    FindEnclosing();
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (u.is(Op::kReduce) || u.is(Op::kStore)) AddWork(u);
      if (u.is(Op::kReduce) && IsOrderedSum(u)) AddSum(u);
      if (u.is(Op::kStore)) shape_.parallel &= shape_.d.of[id];
      if (u.is(Op::kEnd)) {
        for (int i = 1; i < u.num_src(); ++i) shape_.inner |= Bit(shape_.d.IndexOf(u.src(i)));
      }
      for (int i = 1; u.is(Op::kAfter) && i < u.num_src(); ++i) {
        if (u.src(i).is(Op::kEnd)) shape_.around_nests |= shape_.d.of[u.src(i).id()];
      }
      if (!u.is(Op::kAfter) || !u.src(0).is(Op::kBuffer)) continue;
      for (int i = 1; i < u.num_src(); ++i) {
        if (u.src(i).is(Op::kRange)) shape_.whole |= Bit(shape_.d.IndexOf(u.src(i)));
      }
    }
    for (int r : shape_.outer) shape_.inner &= ~Bit(r);
    shape_.summed_alone = shape_.summed & ~not_alone_;
    shape_.in_place = WritesWhatItReads(sink_);
    shape_.once = OverwritesWhatItReads(sink_);
    shape_.rereads = RereadsAnArgument();
    return std::move(shape_);
  }

 private:
  bool RereadsAnArgument() const {
    absl::flat_hash_set<uint32_t> read, written;
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kLoad) && !u.is(Op::kStore)) continue;
      const UOp memory = Memory(u.src(0));
      if (memory.is(Op::kParam)) (u.is(Op::kLoad) ? read : written).insert(memory.id());
    }
    return std::ranges::any_of(written, [&](uint32_t id) { return read.contains(id); });
  }

  static RangeSet Bit(int i) { return RangeSet{1} << i; }

  // The common beginning of the roots' nests.
  void FindOuter() {
    for (int i = 0; i < sink_.num_src(); ++i) {
      std::vector<int> ranges;
      for (UOp u = sink_.src(i); u.is(Op::kEnd); u = u.src(0)) {
        for (int j = 1; j < u.num_src(); ++j) ranges.push_back(shape_.d.IndexOf(u.src(j)));
      }
      if (i == 0) {
        shape_.outer = ranges;
      } else {
        const auto end = std::ranges::mismatch(shape_.outer, ranges).in1;
        shape_.outer.erase(end, shape_.outer.end());
      }
    }
    // Others run in order: what is inside of them stays there.
    const auto sequential =
        std::ranges::find_if(shape_.outer, [&](int r) { return (shape_.loops >> r & 1) == 0; });
    shape_.outer.erase(sequential, shape_.outer.end());
    for (int r : shape_.outer) shape_.parallel |= Bit(r);
  }

  // A STORE is done for each value of the ranges that the ENDs around it close.
  void FindEnclosing() {
    enclosing_.resize(sink_.id() + 1, 0);
    for (size_t i = order_.size(); i-- > 0;) {
      const UOp u = g_.at(order_[i]);
      if (!u.is(Op::kEnd)) continue;
      RangeSet set = enclosing_[u.id()] | shape_.d.of[u.id()];
      for (int j = 1; j < u.num_src(); ++j) set |= Bit(shape_.d.IndexOf(u.src(j)));
      enclosing_[u.src(0).id()] |= set;
    }
  }

  void AddSum(UOp reduce) {
    RangeSet ranges = 0;
    for (int i = 1; i < reduce.num_src(); ++i) ranges |= Bit(shape_.d.IndexOf(reduce.src(i)));
    shape_.summed |= ranges;
    // Lanes of products are rounded before they are added.
    if (reduce.num_src() > 2 || reduce.src(0).is(Op::kMul)) not_alone_ |= ranges;
  }

  // STOREs to arguments that are done for the same ranges are one work: they share what is loaded
  // and computed for several of them.
  void AddWork(UOp root) {
    const RangeSet ranges = root.is(Op::kStore) ? enclosing_[root.id()] | shape_.d.of[root.id()]
                                                : shape_.d.of[root.src(0).id()];
    absl::flat_hash_set<uint32_t> seen;
    if (!root.is(Op::kStore) || !root.src(0).src(0).is(Op::kParam)) {
      shape_.works.push_back({.root = root, .all = ranges});
      return Describe(root, &shape_.works.back(), &seen);
    }
    const auto [it, added] = stores_.try_emplace(ranges, shape_.works.size());
    if (added) shape_.works.push_back({.root = root, .all = ranges});
    Describe(root, &shape_.works[it->second.work], &it->second.seen);
  }

  void Describe(UOp root, Work* to, absl::flat_hash_set<uint32_t>* seen_nodes) {
    Work& work = *to;
    absl::flat_hash_set<uint32_t>& seen = *seen_nodes;
    for (int i = 1; root.is(Op::kReduce) && i < root.num_src(); ++i) {
      work.own |= Bit(shape_.d.IndexOf(root.src(i)));
    }
    work.all |= work.own;
    if (root.is(Op::kStore)) AddAccess(root, &work);
    std::vector<UOp> stack;
    for (int i = 0; i < (root.is(Op::kReduce) ? 1 : root.num_src()); ++i) {
      stack.push_back(root.src(i));
    }
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      if (!seen.insert(u.id()).second || u.is(Op::kReduce) || u.is(Op::kEnd)) continue;
      const RangeSet ranges = shape_.d.of[u.id()];
      const bool inside = work.own == 0 ? ranges != 0 : (ranges & work.own) != 0;
      if (inside && u.is(Op::kLoad)) AddAccess(u, &work);
      const bool fused = root.is(Op::kReduce) && u == root.src(0) && u.is(Op::kMul) &&
                         IsFloat(u.dtype());  // with the sum's addition
      if (inside && !fused && Is(u.op(), kAlu) && u.dtype() != DType::kInt64 &&
          !IsBool(u.dtype())) {
        work.operations.push_back({ranges, CostOf(u, costs_), ByteSize(u.dtype())});
      }
      for (uint32_t s : u.src_ids()) stack.push_back(g_.at(s));
    }
    if (root.is(Op::kReduce)) work.operations.push_back({work.all, 1, ByteSize(root.dtype())});
  }

  void AddAccess(UOp u, Work* work) {
    MemoryAccess a;
    a.address = u.src(0);
    a.store = u.is(Op::kStore);
    a.ranges = shape_.d.of[a.address.src(1).id()];
    if (a.address.num_src() == 3) {
      a.gate = shape_.d.of[a.address.src(2).id()];
      FindRows(a.address.src(2), &a);
    }
    for (size_t r = 0; r < shape_.size.size(); ++r) {
      a.stride.push_back(Stride(a.address.src(1), static_cast<int>(r)));
    }
    a.bytes = std::max<int64_t>(1, ByteSize(a.address.dtype()));
    a.buffer_bytes = static_cast<double>(NumElements(Memory(a.address).shape()) * a.bytes);
    a.weight = !a.store && IsWeight(a.address);
    work->accesses.push_back(std::move(a));
  }

  void FindRows(UOp gate, MemoryAccess* a) const {
    for (uint32_t id : PostOrder(gate)) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kFloorMod) || !u.src(0).is(Op::kRange) || !u.src(1).is_const()) continue;
      a->rows = shape_.d.IndexOf(u.src(0));
      a->row = u.src(1).const_word();
    }
  }

  bool IsWeight(UOp address) const {
    const UOp memory = address.src(0);
    if (!memory.is(Op::kParam)) return false;
    // What a peel leaves of a gate may always hold.
    if (address.num_src() == 3 && address.src(2).bounds() != Interval{1, 1}) return false;
    const auto slot = static_cast<size_t>(memory.slot());
    if (slot >= arguments_.size() || !arguments_[slot].weight) return false;
    const std::vector<uint32_t> index = PostOrder(address.src(1));
    return std::ranges::none_of(index, [&](uint32_t id) { return g_.op(id) == Op::kLoad; });
  }

  int64_t Stride(UOp index, int range) {
    if ((shape_.d.of[index.id()] >> range & 1) == 0) return 0;
    std::vector<int64_t>& stride = strides_[range];
    if (stride.empty()) {
      stride.assign(sink_.id() + 1, 0);
      for (uint32_t id : order_) {
        if ((shape_.d.of[id] >> range & 1) != 0) stride[id] = StrideOfNode(g_.at(id), stride);
      }
    }
    return stride[index.id()];
  }

  // Of a node that depends on a range, from its sources'.
  static int64_t StrideOfNode(UOp u, const std::vector<int64_t>& stride) {
    if (u.is(Op::kRange)) return 1;
    const auto of = [&](int i) { return stride[u.src(i).id()]; };
    if (u.dtype() != DType::kInt64 || of(0) == kIrregular) return kIrregular;
    int64_t out;
    bool exact = false;
    if (u.is(Op::kMul) && u.src(1).is_const()) {
      exact = CheckedMul(of(0), u.src(1).const_word(), &out);
    } else if (u.is(Op::kAdd) && of(1) != kIrregular) {
      exact = CheckedAdd(of(0), of(1), &out);
    } else if (u.is(Op::kSub) && of(1) != kIrregular) {
      exact = CheckedSub(of(0), of(1), &out);
    }
    return exact ? out : kIrregular;
  }

  const Graph& g_;
  const UOp sink_;
  const std::vector<uint32_t> order_;
  const ThreadCosts& costs_;
  const std::span<const Program::Argument> arguments_;
  std::vector<RangeSet> enclosing_;            // of ENDs and STOREs, by node
  std::vector<std::vector<int64_t>> strides_;  // by range and node
  struct Stores {
    explicit Stores(size_t w) : work(w) {}
    size_t work;
    absl::flat_hash_set<uint32_t> seen;  // nodes that it has
  };
  RangeSet not_alone_ = 0;                        // summed, but not KernelShape::summed_alone
  absl::flat_hash_map<RangeSet, Stores> stores_;  // of the works that are STOREs, by their ranges
  KernelShape shape_;
};

}  // namespace

double KernelShape::Iterations(RangeSet set) const {
  double n = 1;
  for (; set != 0; set &= set - 1) n *= static_cast<double>(size[std::countr_zero(set)]);
  return n;
}

bool WritesWhatItReads(UOp sink) {
  absl::flat_hash_set<uint32_t> read, written;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kLoad)) read.insert(Memory(u.src(0)).id());
    if (u.is(Op::kStore)) written.insert(Memory(u.src(0)).id());
  }
  return std::ranges::any_of(written, [&](uint32_t id) { return read.contains(id); });
}

bool OverwritesWhatItReads(UOp sink) {
  const Graph& g = *sink.graph();
  const std::vector<uint32_t> order = PostOrder(sink);
  absl::flat_hash_map<uint32_t, std::vector<UOp>> stores;  // by memory
  for (uint32_t id : order) {
    const UOp u = g.at(id);
    if (u.is(Op::kStore)) stores[Memory(u.src(0)).id()].push_back(u);
  }
  for (uint32_t id : order) {
    const UOp load = g.at(id);
    if (!load.is(Op::kLoad)) continue;
    const auto written = stores.find(Memory(load.src(0)).id());
    if (written == stores.end()) continue;
    absl::flat_hash_set<uint32_t> complete;
    for (UOp base = load.src(0).src(0); base.is(Op::kAfter); base = base.src(0)) {
      for (int i = 1; i < base.num_src(); ++i) {
        UOp effect = base.src(i);
        while (effect.is(Op::kEnd)) effect = effect.src(0);
        complete.insert(effect.id());
      }
    }
    for (UOp store : written->second) {
      if (!complete.contains(store.id())) return true;
    }
  }
  return false;
}

// Ranges that are reduced and others alternate in its index, from the farthest step to the nearest.
bool KernelShape::IsImage(const Work& work, const MemoryAccess& a) const {
  constexpr int kLeastChanges = 4;  // channels, rows, those of the window, columns, its own
  std::vector<std::pair<int64_t, bool>> steps;
  for (RangeSet set = a.ranges; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    if (a.stride[r] == kIrregular) return false;
    if (size[r] > 1) steps.emplace_back(std::abs(a.stride[r]), Has(work.own, r));
  }
  std::ranges::sort(steps);
  int changes = 0;
  for (size_t i = 1; i < steps.size(); ++i) changes += steps[i].second != steps[i - 1].second;
  return changes >= kLeastChanges;
}

bool KernelShape::IsPackable(const Work& work, const MemoryAccess& a) const {
  constexpr double kMaxGrowth = 1.25;  // windows would multiply it
  return a.weight && work.is_reduce() && (a.ranges & work.own) != 0 &&
         Iterations(a.ranges) <= kMaxGrowth * a.elements() &&
         Iterations(work.all & ~work.own & ~a.ranges) >= copy_reads && !IsImage(work, a);
}

std::optional<KernelShape> ReadShape(UOp sink, const Target& target,
                                     std::span<const Program::Argument> arguments) {
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) return std::nullopt;
  const ThreadCosts& costs = CostsOf(target).thread;
  std::optional<KernelShape> shape = ShapeReader(sink, *std::move(d), costs, arguments).Run();
  if (shape) {
    shape->matrix = target.matrix;
    shape->copy_reads = costs.copy_reads;
  }
  return shape;
}

}  // namespace telegrad
