// All orders of the outermost loops are tried, and the predicted time of each is the sum of
//
//   compute   a work is done once for each iteration of the loops down to the innermost one that it
//             depends on: a reduction that does not depend on a loop must stand outside of it
//   memory    what a work reads again in each iteration of a loop that the access does not depend
//             on: for nothing if all that one iteration reads stays in the worker's cache
//
// times how unevenly the outermost loop is shared by the threads.
#include "engine/lowering/loop_order.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/lowering/block_choice.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

class Orderer {
 public:
  Orderer(const KernelShape& shape, const std::vector<int64_t>& tile, const Target& target,
          RangeSet vectors, int blocked)
      : s_(shape),
        tile_(tile),
        target_(target),
        costs_(CostsOf(target).thread),
        vectors_(vectors),
        blocked_(blocked) {}

  LoopOrder Run() {
    std::vector<int> loops;
    for (int r : s_.outer) {
      if (Trips(r) > 1) loops.push_back(r);
    }
    LoopOrder best;
    if (loops.empty()) return best;
    if (loops.size() > kMaxOrdered) {
      best.loops = loops;
      const auto thread =
          std::ranges::find_if(loops, [&](int r) { return (s_.parallel >> r & 1) != 0; });
      if (thread != loops.end()) best.thread = *thread;
      return best;
    }
    std::vector<size_t> position(loops.size());
    for (size_t i = 0; i < position.size(); ++i) position[i] = i;
    double least = HUGE_VAL;
    int fewest = 0;  // far loads of the best
    do {
      std::vector<int> order;
      for (size_t p : position) order.push_back(loops[p]);
      const bool parallel = (s_.parallel >> order[0] & 1) != 0;
      const double time = Time(order) * (parallel ? Unevenness(order[0]) : target_.threads);
      const int far = FarLoads(order);
      const bool alike = time < least * 1.001 && far < fewest;
      if (time < least * 0.999 || alike) {
        least = time;
        fewest = far;
        best.thread = parallel ? order[0] : -1;
        best.loops = std::move(order);
      }
    } while (std::ranges::next_permutation(position).found);
    return best;
  }

 private:
  double Trips(int r) const {
    return std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile_[r]));
  }

  // 1: each thread has the same; as many as there are threads: one has it all.
  double Unevenness(int r) const {
    const double trips = Trips(r), threads = target_.threads;
    return std::ceil(trips / threads) * threads / trips;
  }

  double Time(const std::vector<int>& order) const {
    double time = 0;
    for (const Work& work : s_.works) {
      double times = 1, trips = 1;
      for (int r : order) {
        trips *= Trips(r);
        if ((work.all >> r & 1) != 0) times = trips;
      }
      RangeSet rest = work.all;
      for (int r : order) rest &= ~Bit(r);
      time += times * s_.Iterations(rest) * Cost(work) + Memory(work, order) + Copies(work, order);
    }
    return time;
  }

  // Of kernels that reduce nothing: of arguments beyond the worker's cache, those that are loaded
  // far apart in the innermost loop, so that nothing loads them ahead. Of orders that are alike
  // otherwise, as of a square that is transposed, one that stores far apart is faster: nothing
  // waits for a store.
  int FarLoads(const std::vector<int>& order) const {
    const auto inner = static_cast<size_t>(order.back());
    int far = 0;
    for (const Work& work : s_.works) {
      if (work.is_reduce()) return 0;
      for (const MemoryAccess& a : work.accesses) {
        if (a.store || (a.ranges >> inner & 1) == 0 || a.stride[inner] == kIrregular) continue;
        const auto step = static_cast<double>(std::abs(a.stride[inner]) * a.bytes);
        const bool large = a.buffer_bytes > static_cast<double>(target_.cache_bytes);
        if (large && step >= costs_.near_rows) ++far;
      }
    }
    return far;
  }

  // Cycles of what is computed together of one value of the other ranges, roughly.
  double Cost(const Work& work) const {
    double cost = 1;
    for (const Work::Operation& o : work.operations) cost += costs_.operation * o.cost;
    return cost;
  }

  // Cycles to bring together what a reduction reads in lanes that lie apart or have gates: once for
  // each iteration of the loops down to the innermost one that it depends on, see stage.h.
  double Copies(const Work& work, const std::vector<int>& order) const {
    double cycles = 0;
    for (const MemoryAccess& a : work.accesses) {
      const RangeSet lanes = a.ranges & vectors_ & ~work.own;
      if (!work.is_reduce() || a.store || lanes == 0 || s_.IsPackable(work, a)) continue;
      const auto lane = static_cast<size_t>(std::countr_zero(lanes));
      const bool padded = s_.once && s_.size[lane] % tile_[lane] != 0;
      if (a.stride[lane] == 1 && (a.gate & lanes) == 0 && !padded) continue;
      double times = 1, trips = 1, elements = 1;
      for (int r : order) {
        trips *= Trips(r);
        if (((a.ranges | a.gate) >> r & 1) != 0) times = trips;
      }
      for (RangeSet set = a.ranges | a.gate; set != 0; set &= set - 1) {
        const auto r = static_cast<size_t>(std::countr_zero(set));
        const bool ordered = std::ranges::find(order, static_cast<int>(r)) != order.end();
        elements *= static_cast<double>(ordered ? tile_[r] : s_.size[r]);
      }
      cycles += times * elements * costs_.copy;
    }
    return cycles;
  }

  // Bytes that `a` touches while the ranges of `set` run and the others stand.
  double Footprint(const MemoryAccess& a, RangeSet set) const {
    double elements = 1, span = 1;
    bool dense = false, regular = true;
    for (RangeSet left = a.ranges; left != 0; left &= left - 1) {
      const int r = std::countr_zero(left);
      const auto n = static_cast<double>((set >> r & 1) != 0 ? s_.size[r] : tile_[r]);
      elements *= n;
      if (a.stride[r] == kIrregular) {
        regular = false;
      } else {
        const auto stride = static_cast<double>(std::abs(a.stride[r]));
        span += stride * (n - 1);
        dense |= n * stride * static_cast<double>(a.bytes) >= costs_.line_bytes && stride <= 2;
      }
    }
    const auto bytes = static_cast<double>(a.bytes);
    double out = elements * (dense ? bytes : costs_.line_bytes);
    if (regular) out = std::min(out, span * bytes + costs_.line_bytes);
    return std::min(out, a.buffer_bytes + costs_.line_bytes);
  }

  // Cycles for what the worker's cache does not keep.
  double Memory(const Work& work, const std::vector<int>& order) const {
    // inside[i]: what runs within one iteration of the loops up to i.
    RangeSet set = work.all;
    std::vector<RangeSet> inside;
    for (int r : order) inside.push_back(set &= ~Bit(r));
    double total = 0;
    for (const MemoryAccess& a : work.accesses) {
      double bytes = Footprint(a, inside.back());
      for (size_t i = order.size(); i-- > 0;) {
        const int r = order[i];
        if ((work.all >> r & 1) == 0) continue;
        double all = 0;
        for (const MemoryAccess& other : work.accesses) all += Footprint(other, inside[i]);
        const bool kept = all <= static_cast<double>(target_.cache_bytes) * costs_.kept;
        if ((a.ranges >> r & 1) != 0) {
          // Lines that iterations have in common are read once, if the cache keeps them as long.
          const RangeSet whole = i == 0 ? work.all : inside[i - 1];
          bytes *= kept ? Footprint(a, whole) / Footprint(a, inside[i]) : Trips(r);
        } else if (!kept) {
          bytes *= MayBlock(work, a) ? std::min(Trips(r), Parts(work, order, i)) : Trips(r);
        } else if (i == 0 && (s_.parallel >> r & 1) != 0) {
          // Each thread's own cache has to get it.
          bytes *= std::min<double>(Trips(r), target_.threads);
        }
      }
      // A packed copy is read as it lies.
      total += bytes * (s_.IsPackable(work, a) ? costs_.missed_in_stream : costs_.missed);
    }
    return total;
  }

  // Whether `a` is a panel that is reduced in blocks: see block_choice.h.
  bool MayBlock(const Work& work, const MemoryAccess& a) const {
    if (blocked_ < 0 || &work != &s_.works[static_cast<size_t>(blocked_)]) return false;
    const RangeSet kept = work.all & ~work.own;
    if (!work.is_reduce() || (a.ranges & work.own) == 0 || (a.ranges & kept & vectors_) == 0) {
      return false;
    }
    double bytes = s_.Iterations(a.ranges & work.own) * static_cast<double>(a.bytes);
    for (RangeSet set = a.ranges & kept; set != 0; set &= set - 1) {
      bytes *= static_cast<double>(tile_[static_cast<size_t>(std::countr_zero(set))]);
    }
    return bytes > PanelBytes(target_);
  }

  // Into how many parts the loops from `i` on fall whose accumulators a block can keep.
  double Parts(const Work& work, const std::vector<int>& order, size_t i) const {
    double bytes = static_cast<double>(ByteSize(work.root.dtype()));
    for (RangeSet set = work.all & ~work.own; set != 0; set &= set - 1) {
      bytes *= static_cast<double>(tile_[static_cast<size_t>(std::countr_zero(set))]);
    }
    for (; i < order.size(); ++i) bytes *= Trips(order[i]);
    return std::ceil(bytes / PartBytes(target_));
  }

  const KernelShape& s_;
  const std::vector<int64_t>& tile_;
  const Target& target_;
  const ThreadCosts& costs_;
  const RangeSet vectors_;
  const int blocked_;
};

}  // namespace

LoopOrder OrderLoops(const KernelShape& shape, const std::vector<int64_t>& tile,
                     const Target& target, RangeSet vectors, int blocked) {
  return Orderer(shape, tile, target, vectors, blocked).Run();
}

}  // namespace telegrad
