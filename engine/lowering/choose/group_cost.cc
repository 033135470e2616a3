// A workgroup does each work for a part of its ranges: all iterations of a range that becomes no
// workgroups, else those of one tile. Threads divide the iterations of ranges that have some among
// each other and all do those of others. A work takes as long as its arithmetic or its accesses,
// whichever is more:
//
//   arithmetic   each operation once for what copies of a tile share
//   accesses     an f32 as a part of a whole access of neighbouring threads, and a sector of memory
//                for each element where these are apart; where all threads read the same one, they
//                share it
//
// A processor waits where its threads are too few to hide each other's waiting, and some have no
// workgroup while the last ones run.
#include "engine/lowering/choose/group_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/ir/product_tile.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// How a list splits a range.
struct RangeSplit {
  int64_t threads = 1, copies = 1, lanes = 1;
  int axis = 0;  // of the threads
  bool groups = false;

  int64_t tile() const { return threads * copies * lanes; }
};

class GroupCost {
 public:
  GroupCost(const KernelShape& shape, const Target& target, const MoveList& moves)
      : s_(shape), target_(target), costs_(CostsOf(target).group), splits_(shape.size.size()) {
    for (const Move& move : moves) Split(move);
    for (const RangeSplit& split : splits_) {
      axes_[split.axis] = std::max(axes_[split.axis], split.threads);
    }
  }

  double Run() const {
    if (stage_.amount > 0) {
      if (const std::optional<double> product = Product()) return *product;
    }
    double group = 0;
    for (const Work& work : s_.works) group += CostOf(work);
    double groups = 1;
    for (size_t r = 0; r < splits_.size(); ++r) {
      if (splits_[r].groups) groups *= Tiles(static_cast<int>(r));
    }
    const double rounds = std::ceil(groups / target_.threads);
    const double busy = static_cast<double>(Threads()) * rounds;  // threads of a processor
    const double waits = std::max(1.0, static_cast<double>(costs_.threads) / busy);
    return waits * (rounds * target_.threads + groups) * group;
  }

 private:
  void Split(const Move& move) {
    const auto at = std::ranges::find_if(s_.d.ranges,
                                         [&](UOp range) { return range.range_id() == move.range; });
    if (at == s_.d.ranges.end()) return;
    RangeSplit& split = splits_[static_cast<size_t>(at - s_.d.ranges.begin())];
    switch (RowOf(move.kind).part) {
      case MovePart::kThreads:
        split.threads *= move.amount;
        split.axis = move.axis;
        break;
      case MovePart::kReplicas:
      case MovePart::kUnrolled:
        split.copies *= move.amount;
        break;
      case MovePart::kInstruction:
        split.copies *= move.amount;
        instructions_ = true;
        break;
      case MovePart::kLanes:
        split.lanes *= move.amount;
        break;
      case MovePart::kLoop:
      case MovePart::kNone:  // these divide a range among no threads
        split.groups |= move.kind == Move::Kind::kGroup;
        if (move.kind == Move::Kind::kStage) stage_ = move;
        break;
    }
  }

  std::optional<double> Product() const {
    const std::optional<Matmul> p = FindMatmul(s_);
    if (!p) return std::nullopt;
    const int m = s_.d.IndexOf(p->m), n = s_.d.IndexOf(p->n), k = s_.d.IndexOf(p->k);
    const ProductTile tile{splits_[m].threads, splits_[n].threads,
                           splits_[m].copies * splits_[m].lanes,
                           splits_[n].copies * splits_[n].lanes, stage_.amount};
    const DType dtype = p->a.dtype();
    const int64_t elements = PanelElements(tile.rows(), tile.columns(), tile.k, target_);
    if (elements * ByteSize(dtype) > target_.local_bytes) return HUGE_VAL;
    const double batch = s_.Iterations(s_.parallel & ~(Bit(m) | Bit(n)));
    return CostOfProduct({s_.size[m], s_.size[n], s_.size[k], batch, dtype}, tile,
                         /*scattered=*/false, target_);
  }

  int64_t Threads() const {
    int64_t threads = instructions_ ? target_.warp : 1;
    for (const int64_t axis : axes_) threads *= axis;
    return threads;
  }
  double Tiles(int r) const {
    return std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(splits_[r].tile()));
  }
  // Iterations of one thread.
  double Share(int r) const {
    const auto one = static_cast<double>(splits_[r].copies * splits_[r].lanes);
    return splits_[r].groups ? one : Tiles(r) * one;
  }
  double Share(RangeSet set) const {
    double n = 1;
    for (; set != 0; set &= set - 1) n *= Share(std::countr_zero(set));
    return n;
  }
  // Of a tile's copies, those that share what is done for `set`.
  double Shared(RangeSet all, RangeSet set) const {
    double n = 1;
    for (RangeSet rest = all & ~set; rest != 0; rest &= rest - 1) {
      const RangeSplit& split = splits_[std::countr_zero(rest)];
      n *= static_cast<double>(split.copies * split.lanes);
    }
    return n;
  }

  // Of one access to an element, by neighbouring threads at once.
  double CostOf(const Work& work, const MemoryAccess& a) const {
    const double whole = costs_.partial * static_cast<double>(a.bytes) / ByteSize(DType::kFloat32);
    const double apart = std::max(whole, costs_.sector);
    int64_t lanes = 1, threads = 1, stride = 0;  // of neighbours
    for (RangeSet set = work.all; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (a.stride[r] == 1) lanes *= splits_[r].lanes;
      if (splits_[r].axis != 0 || splits_[r].threads == 1) continue;
      threads = splits_[r].threads;
      stride = a.stride[r];
    }
    const auto together = static_cast<double>(
        std::min<int64_t>(threads, target_.warp > 1 ? target_.warp : costs_.step));
    if (stride == 0)
      return std::max(whole / together, apart / (together * static_cast<double>(lanes)));
    if (stride == 1) return whole;
    return std::max(whole, apart / static_cast<double>(lanes));
  }

  // Of all threads of a workgroup.
  double CostOf(const Work& work) const {
    const double all = Share(work.all);
    double arithmetic = 0, memory = 0;
    for (const Work::Operation& o : work.operations) {
      arithmetic += o.cost * all / Shared(work.all, o.ranges);
    }
    for (const MemoryAccess& a : work.accesses) {
      memory += CostOf(work, a) * all / Shared(work.all, a.ranges);
      if (a.gate != 0) arithmetic += costs_.apart * all / Shared(work.all, a.ranges | a.gate);
    }
    // Threads that share a reduction tell each other their parts.
    int64_t parts = 1;
    for (RangeSet set = work.own; set != 0; set &= set - 1) {
      parts *= splits_[std::countr_zero(set)].threads;
    }
    const double steps = std::log2(static_cast<double>(parts)) * Share(work.all & ~work.own);
    return static_cast<double>(Threads()) * (std::max(arithmetic, memory) + costs_.copied * steps);
  }

  const KernelShape& s_;
  const Target& target_;
  const GroupCosts& costs_;
  std::vector<RangeSplit> splits_;
  std::array<int64_t, kMaxThreadAxes> axes_ = {1, 1, 1};
  Move stage_ = {};
  bool instructions_ = false;
};

}  // namespace

double CostOfGroups(const KernelShape& shape, const Target& target, const MoveList& moves) {
  return GroupCost(shape, target, moves).Run();
}

}  // namespace telegrad
