// The heuristic. It predicts cycles for every choice among a few hundred and takes the least:
//
//   lanes     the range that becomes vectors: one for each work, its own if it folds
//   tile      other ranges that some load does not depend on: upcasting them reuses that load from
//             registers (the register tile of a matrix product). It is chosen for the heaviest work
//   chains    a fold that is added to fewer accumulators than its additions take cycles waits for
//             them: some of its iterations get accumulators of their own
//   peel      what the lanes and chains of a fold leave over becomes a fold of its own, and many
//             lanes that the last vector of a loop would compute in vain become a nest of its own
//   unroll    short innermost folded ranges, such as a convolution's window
//
// Then it orders the loops and picks the one that is shared by the threads: see loop_order.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/lowering/block_choice.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/loop_order.h"
#include "engine/lowering/moves.h"
#include "engine/lowering/shared_loops.h"
#include "engine/lowering/stage.h"

namespace telegrad {
namespace {

constexpr double kMaxReplicated = 4000;  // operations in the innermost loop, of all replicas
constexpr double kMaxUnrolled = 200;     // the same of a window
constexpr double kMaxMasked = 1000;      // of one whose masks only then do not change in the loop
constexpr int64_t kMinCopies = 4;        // of a tile that is worth a peel
constexpr double kMinOutside = 64;       // iterations around it, for each thread
constexpr int64_t kMinShared = 3;        // of a loop that overhangs, for each thread
constexpr size_t kMaxNodes = 2000;       // a larger kernel is not tiled

// Cycles, of a processor that loads twice and computes twice in each.
constexpr double kLoad = 0.5, kStore = 1, kOperation = 0.5, kUnaligned = 0.3, kShuffle = 0.8;
constexpr double kLaneGate = 0.7, kBranch = 1.5, kGather = 0.8;
constexpr double kLoop = 1.5;  // of an iteration
constexpr double kFirstLevelCacheBytes = 32 << 10;
constexpr int64_t kPage = 4096;
constexpr double kEvicted = 4;  // of a load that the first-level cache has lost
constexpr double kSecondLevelCyclesPerByte = 1.0 / 20;  // from the second-level cache
// From the cache that all workers share, of rows that the processor loads ahead.
constexpr double kSharedCyclesPerByte = 1.0 / 60;
constexpr int64_t kMaxBlocks = 8;     // that a panel of windows is copied in
constexpr int kMaxStride = 4;         // of lanes that are loaded as whole vectors
constexpr int64_t kSquares = 8;       // in a row of a block's panel
constexpr int64_t kMinUnitRows = 64;  // of a product, for which the other operand is copied once
constexpr int64_t kChains = 8;        // accumulators that hide the latency of an addition

constexpr int64_t kAmounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16};

// How one work runs: at most three ranges are upcast.
struct Tile {
  int lanes = -1;
  int64_t width = 1;
  struct Part {
    int range = -1;
    int64_t amount = 1;
  };
  Part parts[3];

  int64_t Copies(RangeSet set) const {
    int64_t n = 1;
    for (const Part& p : parts) n *= Has(set, p.range) ? p.amount : 1;
    return n;
  }
  int64_t Of(int range) const {
    int64_t n = range == lanes ? width : 1;
    for (const Part& p : parts) n *= p.range == range ? p.amount : 1;
    return n;
  }
};

class CpuHeuristic {
 public:
  // `peels`: find what is to be peeled, else all other moves. `rank`: which tile the heaviest work
  // gets; 0 is the best one.
  CpuHeuristic(KernelShape shape, const Target& target, bool peels, size_t rank = 0)
      : s_(std::move(shape)),
        target_(target),
        peels_(peels),
        rank_(rank),
        room_(kMaxRanges - static_cast<int>(s_.size.size())) {
    for (int r : s_.outer) outer_ |= Bit(r);
    for (const Work& work : s_.works) {
      for (const MemoryAccess& a : work.accesses) {
        for (RangeSet set = a.store ? a.ranges : 0; set != 0; set &= set - 1) {
          const int r = std::countr_zero(set);
          if (a.stride[r] != 1) scattered_ |= Bit(r);
        }
      }
    }
  }

  MoveList Run() {
    std::vector<size_t> order(s_.works.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](size_t i) { return Weight(s_.works[i]); });
    for (size_t i : order) {
      const Work& work = s_.works[i];
      const bool first = i == order[0], small = s_.nodes <= kMaxNodes;
      if (first && small) heaviest_ = static_cast<int>(i);
      // A sum of products in a nest of its own has a tile of its own.
      const bool apart = work.is_reduce() && (work.all & taken_ & ~s_.whole) == 0;
      const Tile tile = Best(work, (first || apart) && small, first ? rank_ : 0);
      if (first) predicted_ = Cycles(work, tile);
      Apply(work, tile, first, first || apart);
      taken_ |= work.all;
    }
    for (const Work& work : s_.works) {
      if (work.is_reduce()) Chains(work);
    }
    if (peels_) return std::move(moves_);
    for (const Work& work : s_.works) {
      if (work.is_reduce()) Unroll(work);
    }
    for (size_t r = 0; r < s_.size.size(); ++r) {
      if (lanes_[r] > 1)
        moves_.push_back({Move::Kind::kVectorize, s_.d.ranges[r].arg(0), lanes_[r]});
    }
    Order();
    return std::move(moves_);
  }

  // Of the heaviest work, after Run.
  double predicted() const { return predicted_; }
  bool exhausted() const { return exhausted_; }

  // Cycles of all works with a list of moves.
  double Predict(const MoveList& moves) const {
    double cycles = 0;
    for (const Work& work : s_.works) {
      Tile tile;
      size_t parts = 0;
      for (const Move& m : moves) {
        const auto at =
            std::ranges::find_if(s_.d.ranges, [&](UOp range) { return range.arg(0) == m.range; });
        const auto r = static_cast<int>(at - s_.d.ranges.begin());
        if (at == s_.d.ranges.end() || !Has(work.all, r)) continue;
        if (m.kind == Move::Kind::kVectorize) {
          tile.lanes = r;
          tile.width = m.amount;
        } else if (m.kind == Move::Kind::kUpcast && parts < std::size(tile.parts)) {
          tile.parts[parts++] = {r, m.amount};
        }
      }
      cycles += Cycles(work, tile);
    }
    return cycles;
  }

 private:
  double Weight(const Work& work) const {
    double cost = 0;
    for (const Work::Operation& o : work.operations) cost += o.cost / Repeats(work, o.ranges, {});
    return s_.Iterations(work.all) * (cost + static_cast<double>(work.accesses.size())) *
           (work.is_reduce() ? 1 : 0.5);
  }

  // Iterations of the loops of a store that are inside of all those that an operation depends on:
  // it is done once for all of them, as what a row is divided by.
  double Repeats(const Work& work, RangeSet ranges, const Tile& tile) const {
    if (work.is_reduce()) return 1;
    const auto last =
        std::find_if(s_.outer.rbegin(), s_.outer.rend(), [&](int r) { return Has(ranges, r); });
    RangeSet inside = work.all & ~ranges;
    for (auto r = last; r != s_.outer.rend(); ++r) inside &= ~Bit(*r);
    if ((ranges & ~outer_) != 0) return 1;  // of some loop of an inner nest
    double n = 1;
    for (; inside != 0; inside &= inside - 1) {
      const int r = std::countr_zero(inside);
      n *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
    }
    return n;
  }

  // Lanes are as many as fit into a register of the widest element that is loaded, computed or
  // stored: f16 that is computed in f32 has f32's lanes, else a tile would need twice the
  // registers.
  int64_t WidestBytes(const Work& work) const {
    int64_t bytes = 1;
    for (const Work::Operation& o : work.operations) bytes = std::max(bytes, o.bytes);
    for (const MemoryAccess& a : work.accesses) bytes = std::max(bytes, a.bytes);
    return bytes;
  }

  // Lanes are one axis: no work may depend on two ranges of lanes.
  bool MayBeLanes(int range) const {
    return std::ranges::all_of(s_.works, [&](const Work& w) {
      return !Has(w.all, range) || (w.all & vectors_ & ~Bit(range)) == 0;
    });
  }

  // `reuse`: how often a load whose lanes lie far apart is read from a copy, if it is copied first.
  double LoadCycles(const MemoryAccess& a, const Tile& tile, double reuse = 1) const {
    if (std::isinf(reuse) && Has(a.ranges, tile.lanes)) return kLoad;
    if (reuse > 1 && IsRough(a, tile)) return kLoad + (LoadCycles(a, tile) + kStore) / reuse;
    double gate = 0;
    if (IsMasked(a, tile)) {
      gate = kLaneGate;
    } else if (a.gate != 0) {
      gate = kBranch;
    }
    if (!Has(a.ranges, tile.lanes)) return kLoad + gate;
    const int64_t stride = a.stride[tile.lanes];
    if (stride == 1) return kLoad + (tile.width * a.bytes > 32 ? kUnaligned : 0) + gate;
    if (stride > 1 && stride <= kMaxStride && !a.store) {
      return static_cast<double>(stride) * (kLoad + kUnaligned + kShuffle) + gate;
    }
    const double exchanges = kShuffle * std::log2(static_cast<double>(tile.width));
    if (reuse > 1) return kLoad + (2 * kLoad + exchanges) / reuse;
    if (IsSquare(a, tile)) return kLoad + kUnaligned + exchanges;
    return static_cast<double>(tile.width) * kGather * (a.store ? 2 : 1) + 2;
  }

  // Whether lanes have gates of their own: the kernel's, or those of a tile that is rounded up.
  bool IsMasked(const MemoryAccess& a, const Tile& tile) const {
    if (Has(a.gate, tile.lanes)) return true;
    return s_.once && Has(a.ranges, tile.lanes) && s_.size[tile.lanes] % tile.Of(tile.lanes) != 0;
  }

  // Whether a load of lanes is more than that of a whole vector, but for lanes that lie far apart.
  bool IsRough(const MemoryAccess& a, const Tile& tile) const {
    if (a.store || !Has(a.ranges, tile.lanes)) return false;
    return IsMasked(a, tile) || (a.stride[tile.lanes] != 1 && a.stride[tile.lanes] <= kMaxStride);
  }

  // Whether lanes that lie far apart are loaded as whole vectors of what lies between, because the
  // tile has as many neighbours of each: see engine/render/transposes.h.
  bool IsSquare(const MemoryAccess& a, const Tile& tile) const {
    return tile.lanes >= 0 && IsFar(a, tile.lanes) &&
           std::ranges::any_of(tile.parts, [&](const Tile::Part& p) {
             return p.range >= 0 && p.range != tile.lanes && a.stride[p.range] == 1 &&
                    p.amount % tile.width == 0;
           });
  }
  static double AccumulatorBytes(const Work& work, const Tile& tile) {
    return static_cast<double>(tile.Copies(~RangeSet{0}) * tile.width *
                               ByteSize(work.root.dtype()));
  }

  // How often a fold reads what it loads in lanes that lie apart or have gates, where the loops can
  // be ordered so that it is copied first; else 1. See stage.h.
  double ReuseOf(const Work& work, const MemoryAccess& a, const Tile& tile) const {
    if (!work.is_reduce() || tile.lanes < 0) return 1;
    if (IsPacked(work, a, tile)) return HUGE_VAL;
    const bool rough = IsRough(a, tile) && s_.whole == 0;
    if (!rough && !IsFar(a, tile.lanes)) return 1;
    const RangeSet kept = work.all & ~work.own, panel_of = a.ranges | a.gate;
    if (s_.outer.size() > kMaxOrdered || !Has(kept, tile.lanes)) return 1;
    double reuse = 1;
    for (RangeSet set = kept & ~panel_of; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      reuse *= std::floor(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
    }
    if (reuse < kMinReuse) return 1;
    // What is stored stays in its order: two operands cannot both be read as they lie.
    if (Has(scattered_, tile.lanes)) return 1;
    // Loops of an inner nest keep their order: what it reads in them is copied as a whole.
    const RangeSet inner = kept & ~outer_;
    if (rough) {
      double bytes = static_cast<double>(a.bytes);
      for (RangeSet set = panel_of; set != 0; set &= set - 1) {
        const int r = std::countr_zero(set);
        bytes *= static_cast<double>(Has(work.own | inner, r) ? s_.size[r] : tile.Of(r));
      }
      if ((panel_of & work.own) == 0) return 1;
      if (bytes <= PanelBytes(target_)) return reuse;
      // A block of the longest folded range at a time, if the cache has room for the accumulators
      // of as many tiles as make it worth a copy (block_choice.cc).
      int64_t longest = 1;
      for (RangeSet set = work.own; set != 0; set &= set - 1) {
        longest = std::max(longest, s_.size[std::countr_zero(set)]);
      }
      const bool blocks = inner == 0 && kMaxBlocks * PanelBytes(target_) >= bytes &&
                          longest >= kMaxBlocks * kSquares &&
                          kMinReuse * AccumulatorBytes(work, tile) <= PartBytes(target_);
      return blocks ? reuse : 1;
    }
    if (s_.Iterations(a.ranges & (inner | work.own)) * static_cast<double>(a.bytes) >
        (inner != 0 ? PanelBytes(target_) : HUGE_VAL)) {
      return 1;
    }
    // Squares fill the copy, and one that is too large has divisors to be made in blocks.
    const double panel = s_.Iterations(a.ranges & work.own) *
                         static_cast<double>(tile.Copies(a.ranges) * tile.width * a.bytes);
    const int64_t squares = panel > PanelBytes(target_) ? kSquares * tile.width : tile.width;
    bool rows = false;
    for (RangeSet set = work.own & a.ranges; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      rows |= a.stride[r] == 1 && s_.size[r] % squares == 0;
    }
    return rows ? reuse : 1;
  }

  // Whether its lanes are read from a copy of a weight, which is made once. What is stored stays in
  // its order.
  bool IsPacked(const Work& work, const MemoryAccess& a, const Tile& tile) const {
    return !Has(work.own, tile.lanes) && Has(a.ranges, tile.lanes) && s_.IsPackable(work, a) &&
           !Has(scattered_, tile.lanes) && s_.outer.size() <= kMaxOrdered;
  }

  bool IsFar(const MemoryAccess& a, int lanes) const {
    return !a.store && a.gate == 0 && !s_.once && a.stride[lanes] > kMaxStride;
  }

  // Whether the rows that a fold walks along, an element of each at a time, are so far apart that
  // their lines fall onto the same few sets of the first-level cache, more than a set keeps. That
  // cache finds a line by its place in a page.
  bool Conflicts(const Work& work, const MemoryAccess& a, const Tile& tile) const {
    if (!work.is_reduce() || a.store || Has(a.ranges, tile.lanes)) return false;
    bool along = false;
    for (RangeSet set = work.own & a.ranges; set != 0; set &= set - 1) {
      along |= a.stride[std::countr_zero(set)] == 1;
    }
    return along && std::ranges::any_of(tile.parts, [&](const Tile::Part& p) {
             if (p.range < 0 || a.stride[p.range] == 0 || a.stride[p.range] == kIrregular)
               return false;
             const int64_t step = std::gcd(a.stride[p.range] * a.bytes, kPage);
             const int64_t sets = kPage / std::max<int64_t>(step, static_cast<int64_t>(kLineBytes));
             const int64_t ways = static_cast<int64_t>(kFirstLevelCacheBytes) / kPage;
             return p.amount > sets * ways * 3 / 4;  // other operands want some, too
           });
  }

  // What one copy of a load brings into the first-level cache, where neighbours are used later.
  double BytesOf(const MemoryAccess& a, const Tile& tile) const {
    const int64_t stride = tile.lanes < 0 ? 0 : a.stride[tile.lanes];
    const auto bytes = static_cast<double>(a.bytes), width = static_cast<double>(tile.width);
    if (stride == 0) return bytes;
    if (IsSquare(a, tile)) return bytes * width;
    if (stride == kIrregular) return width * kLineBytes;
    return width * std::min(kLineBytes, bytes * static_cast<double>(std::abs(stride)));
  }

  // Predicted cycles of all iterations; infinite where the tile does not fit.
  double Cycles(const Work& work, const Tile& tile) const {
    double memory = 0, compute = 0, stores = 0, bytes = 0, again = 0;
    int64_t operands = 1 << 20, loads = 0;
    for (const MemoryAccess& a : work.accesses) {
      const double reuse = ReuseOf(work, a, tile);
      const double one = LoadCycles(a, tile, reuse) + (Conflicts(work, a, tile) ? kEvicted : 0);
      const double cycles = static_cast<double>(tile.Copies(a.ranges)) * one;
      (a.store ? stores : memory) += cycles;
      if (a.store) continue;
      if (reuse > 1 && !std::isinf(reuse) && IsRough(a, tile)) again += RereadCycles(work, a, tile);
      ++loads;
      bytes += static_cast<double>(tile.Copies(a.ranges)) *
               (reuse > 1 ? static_cast<double>(a.bytes * tile.width) : BytesOf(a, tile));
      operands = std::min(operands, tile.Copies(a.ranges));
    }
    for (const Work::Operation& o : work.operations) {
      compute += kOperation * o.cost * static_cast<double>(tile.Copies(o.ranges)) /
                 Repeats(work, o.ranges, tile);
    }
    const int64_t values = tile.Copies(~RangeSet{0});
    if (work.is_reduce()) {
      const int64_t registers = values + (loads > 1 ? operands : 0) + 1;
      if (values > 1 && registers > target_.vector_registers) return HUGE_VAL;
    } else {
      memory += stores;
    }
    if (compute / kOperation > kMaxReplicated) return HUGE_VAL;
    double iterations = 1;
    for (RangeSet set = work.all; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      iterations *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
    }
    // What a fold walks over seldom stays in the first-level cache until the next tile.
    if (work.is_reduce() && FoldedIterations(work, tile) * bytes > kFirstLevelCacheBytes) {
      memory = std::max(memory, bytes * kSecondLevelCyclesPerByte);
    }
    const double one = std::max(memory, compute) + 0.2 * std::min(memory, compute) + kLoop;
    double total = iterations * one + again;
    // What a folded result costs to store, and to add up over its lanes.
    if (work.is_reduce())
      total += iterations / FoldedIterations(work, tile) * StoreCycles(work, tile);
    return total;
  }

  // Of other operands that do not stay in the worker's cache: each copy of `a` reads them again.
  double RereadCycles(const Work& work, const MemoryAccess& a, const Tile& tile) const {
    double cycles = 0;
    for (const MemoryAccess& other : work.accesses) {
      if (&other == &a || other.store) continue;
      const double bytes = std::min(s_.Iterations(other.ranges) * static_cast<double>(other.bytes),
                                    other.buffer_bytes);
      if (bytes <= PanelBytes(target_)) continue;
      double copies = 1;
      for (RangeSet set = (a.ranges | a.gate) & ~work.own & ~other.ranges; set; set &= set - 1) {
        const int r = std::countr_zero(set);
        copies *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
      }
      cycles += (copies - 1) * bytes * kSharedCyclesPerByte;
    }
    return cycles;
  }

  double FoldedIterations(const Work& work, const Tile& tile) const {
    double n = 1;
    for (RangeSet set = work.own; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      n *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
    }
    return n;
  }

  // Of the stores that a fold's tile ends in, once for each time that the fold is done.
  double StoreCycles(const Work& work, const Tile& tile) const {
    const RangeSet kept = work.all & ~work.own;
    if (Has(work.own, tile.lanes)) {
      return static_cast<double>(tile.Copies(kept)) * 2 *
             std::log2(static_cast<double>(tile.width) + 1);
    }
    double cycles = static_cast<double>(tile.Copies(kept));
    for (const Work& other : s_.works) {
      for (const MemoryAccess& a : other.accesses) {
        if (a.store && (a.ranges & ~kept) == 0) {
          cycles += static_cast<double>(tile.Copies(kept)) * LoadCycles(a, tile);
        }
      }
    }
    return cycles;
  }

  // Amounts that leave a remainder move the last tile back, which is wrong where an element may be
  // computed only once.
  bool Fits(int range, int64_t amount) const {
    const int64_t size = s_.size[range];
    return size % amount == 0 || (!s_.once && size > amount);
  }

  // The lanes that `range` may have: powers of two.
  int64_t Width(const Work& work, int range) const {
    const int64_t most = std::max<int64_t>(1, target_.vector_bytes / WidestBytes(work));
    const int64_t size = s_.size[range];
    int64_t width = most;
    if (Has(work.own, range)) {
      while (width > size || (!peels_ && size % width != 0)) width /= 2;
      return width;
    }
    while (width > 2 && width / 2 >= size) width /= 2;
    return size == 1 ? 1 : width;
  }

  Tile Best(const Work& work, bool tiled, size_t rank) {
    Tile best;
    // A range that is lanes already is lanes here.
    const RangeSet given = work.all & vectors_;
    if (given != 0) {
      best.lanes = std::countr_zero(given);
      best.width = lanes_[best.lanes];
      return best;
    }
    double least = Cycles(work, best);
    const RangeSet kept = work.all & s_.loops & ~work.own & ~s_.whole;
    std::vector<int> candidates{-1};
    for (RangeSet set = kept | (work.own & ~s_.whole); set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (s_.size[r] > 1 && Width(work, r) > 1 && MayBeLanes(r)) candidates.push_back(r);
    }
    // Ranges that some load does not depend on.
    std::vector<int> reused;
    for (RangeSet set = kept; tiled && work.is_reduce() && set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      const bool reuses = std::ranges::any_of(
          work.accesses, [&](const MemoryAccess& a) { return !a.store && a.stride[r] == 0; });
      if (reuses && s_.size[r] > 1) reused.push_back(r);
    }
    std::vector<std::pair<double, Tile>> ranked;  // only where another than the best is wanted
    const auto consider = [&](const Tile& tile) {
      const double cycles = Cycles(work, tile);
      if (rank > 0 && !std::isinf(cycles)) ranked.emplace_back(cycles, tile);
      if (cycles < least) {
        least = cycles;
        best = tile;
      }
    };
    for (int lanes : candidates) {
      Tile tile;
      tile.lanes = lanes;
      if (lanes >= 0) tile.width = Width(work, lanes);
      for (int64_t vectors : {1, 2, 3, 4, 7, 8, 16}) {
        tile.parts[0] = {lanes, vectors};
        tile.parts[1] = tile.parts[2] = {};
        if (vectors > 1) {
          const bool reuses = std::ranges::find(reused, lanes) != reused.end();
          const bool sums = tiled && work.is_reduce() && Has(kept, lanes);
          if (!(reuses || sums) || HasMasks(work, tile) || Overhangs(work, tile)) continue;
          if (!FitsVectors(work, lanes, tile.width, vectors)) continue;
        }
        consider(tile);
        for (int r : RowsOf(work, lanes)) {
          if (!tiled || work.is_reduce() || vectors > 1 || !Fits(r, tile.width)) continue;
          tile.parts[1] = {r, tile.width};
          consider(tile);
          tile.parts[1] = {};
        }
        for (size_t i = 0; i < reused.size(); ++i) {
          if (reused[i] == lanes) continue;
          for (int64_t m : kAmounts) {
            if (m == 1 || !Fits(reused[i], m)) continue;
            tile.parts[1] = {reused[i], m};
            tile.parts[2] = {};
            if (vectors * m > target_.vector_registers) break;
            consider(tile);
            for (size_t j = i + 1; j < reused.size(); ++j) {
              if (reused[j] == lanes) continue;
              for (int64_t n : kAmounts) {
                if (n == 1 || !Fits(reused[j], n)) continue;
                if (vectors * m * n > target_.vector_registers) break;
                tile.parts[2] = {reused[j], n};
                consider(tile);
              }
              tile.parts[2] = {};
            }
          }
        }
      }
    }
    if (rank == 0) return best;
    std::ranges::stable_sort(ranked, {}, [](const auto& one) { return one.first; });
    exhausted_ = rank >= ranked.size();
    return exhausted_ ? best : ranked[rank].second;
  }

  // The ranges along which loads whose lanes lie far apart are contiguous.
  std::vector<int> RowsOf(const Work& work, int lanes) const {
    std::vector<int> rows;
    for (const MemoryAccess& a : work.accesses) {
      if (lanes < 0 || !IsFar(a, lanes)) continue;
      for (RangeSet set = a.ranges & s_.loops & ~s_.whole; set != 0; set &= set - 1) {
        const int r = std::countr_zero(set);
        if (a.stride[r] == 1 && std::ranges::find(rows, r) == rows.end()) rows.push_back(r);
      }
    }
    return rows;
  }

  // Whether each vector of kept lanes, in each iteration of a window, has a mask of its own, and is
  // not copied first. There are few registers for masks.
  bool HasMasks(const Work& work, const Tile& tile) const {
    return work.is_reduce() && Has(work.all & ~work.own, tile.lanes) &&
           std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
             return Has(a.gate, tile.lanes) && (a.gate & work.own) != 0 &&
                    ReuseOf(work, a, tile) == 1;
           });
  }

  // Whether a tile of several masked vectors computes many lanes in vain that one vector would not,
  // where the masks are not a matter of a copy.
  bool Overhangs(const Work& work, const Tile& tile) const {
    const int64_t size = s_.size[tile.lanes], lanes = tile.Of(tile.lanes);
    const auto computed = [&](int64_t step) { return (size + step - 1) / step * step; };
    if (computed(lanes) * 20 <= computed(tile.width) * 21) return false;
    // With a copy, the loop over lanes is the outer one: threads have to share it evenly.
    const bool shared = computed(lanes) / lanes >= kMinShared * target_.threads;
    return std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
      return IsMasked(a, tile) && !(shared && ReuseOf(work, a, tile) > 1);
    });
  }

  // Vectors that overhang are gated, unless there are whole ones to move the last tile back over.
  bool FitsVectors(const Work& work, int range, int64_t width, int64_t vectors) const {
    const int64_t size = s_.size[range], tile = width * vectors;
    if (tile >= size) return tile - size < width;  // the whole range
    return Fits(range, tile) || (work.is_reduce() && !Has(work.own, range) && s_.whole == 0);
  }

  void Apply(const Work& work, const Tile& tile, bool first, bool tiled) {
    if (tile.lanes >= 0 && tile.width > 1 && !Has(vectors_, tile.lanes) && room_ > 0) {
      --room_;
      vectors_ |= Bit(tile.lanes);
      lanes_[tile.lanes] = tile.width;
      if (Has(work.own, tile.lanes)) {
        Peel(tile.lanes, tile.width);
      } else if (first && work.is_reduce() && PaysToPeel(work, tile)) {
        Peel(tile.lanes, tile.width);
      }
    }
    if (!tiled) return;
    for (const Tile::Part& p : tile.parts) {
      if (p.range >= 0) Upcast(p.range, p.amount);
    }
  }

  void Upcast(int range, int64_t amount, Move::Kind kind = Move::Kind::kUpcast) {
    if (amount < 2 || room_ <= 0) return;
    --room_;
    upcast_[range] *= amount;
    if (!peels_) moves_.push_back({kind, s_.d.ranges[range].arg(0), amount});
  }

  void Peel(int range, int64_t step) {
    const int64_t rest = s_.size[range] % step;
    if (!peels_ || rest == 0 || s_.size[range] < step || Has(peeled_, range)) return;
    if (room_ <= 0) return;
    --room_;
    peeled_ |= Bit(range);
    moves_.push_back({Move::Kind::kPeel, s_.d.ranges[range].arg(0), s_.size[range] - rest});
  }

  // Whether narrower vectors for the rest of a loop save many lanes of a register tile, and the
  // loops that are left around both parts still are enough for the threads. These are then around
  // the lanes, too: what a tile walks along is read in each of their iterations, without a copy.
  bool PaysToPeel(const Work& work, const Tile& tile) const {
    const int64_t size = s_.size[tile.lanes], whole = size / tile.width * tile.width;
    const auto rest = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size - whole)));
    if (s_.once || s_.outer.empty() || s_.outer.back() != tile.lanes || whole == 0) {
      return false;
    }
    for (const MemoryAccess& a : work.accesses) {
      if (!Has(a.ranges, tile.lanes)) continue;
      // A row that begins anywhere lies in one line more.
      const auto row = static_cast<double>(tile.Of(tile.lanes) * a.bytes) + kLineBytes;
      if (s_.Iterations(a.ranges & work.own) * row > kFirstLevelCacheBytes) return false;
    }
    if (3 * s_.size.size() > kMaxRanges) return false;  // both parts have ranges of their own
    if ((whole + tile.width) * 20 < (whole + rest) * 21) return false;
    if (tile.Copies(~Bit(tile.lanes)) < kMinCopies) return false;
    double iterations = 1;
    for (int r : s_.outer) iterations *= r == tile.lanes ? 1 : static_cast<double>(s_.size[r]);
    return iterations >= kMinOutside * target_.threads;
  }

  int64_t Left(int range) const { return s_.size[range] / (lanes_[range] * upcast_[range]); }

  // Accumulators for a fold that has few.
  void Chains(const Work& work) {
    int64_t chains = 1;
    for (RangeSet set = work.all; set != 0; set &= set - 1)
      chains *= upcast_[std::countr_zero(set)];
    int range = -1;
    for (RangeSet set = work.own & ~s_.whole; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (range < 0 || lanes_[r] > 1 || (lanes_[range] == 1 && Left(r) > Left(range))) range = r;
    }
    if (range < 0 || work.operations.size() > 64 || Left(range) < 4) return;
    // An iteration of many operations gives the last addition time to end.
    double cost = 0;
    for (const Work::Operation& o : work.operations) cost += o.cost;
    chains = static_cast<int64_t>(static_cast<double>(chains) * std::max(1.0, cost));
    int64_t most = 1;
    while (2 * most * chains <= kChains && 2 * most <= Left(range) / 2) most *= 2;
    if (most < 2) return;
    const int64_t step = lanes_[range] * upcast_[range];
    if (peels_ && s_.size[range] >= 4 * step * most) Peel(range, step * most);
    while (most > 1 && s_.size[range] % (step * most) != 0) most /= 2;
    Upcast(range, most);
  }

  void Unroll(const Work& work) {
    double replicas = 1;
    for (RangeSet set = work.all; set != 0; set &= set - 1) {
      replicas *= static_cast<double>(upcast_[std::countr_zero(set)]);
    }
    replicas *= static_cast<double>(std::max<size_t>(1, work.operations.size()));
    for (int i = work.root.num_src() - 1; i > 0; --i) {
      const int r = s_.d.IndexOf(work.root.src(i));
      const int64_t left = Left(r);
      if (left < 2) continue;
      if (Has(s_.whole, r)) return;
      const bool masks = std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
        return Has(a.gate, r) && (a.gate & vectors_) != 0;
      });
      if (left > 8 || replicas * static_cast<double>(left) > (masks ? kMaxMasked : kMaxUnrolled)) {
        return;
      }
      replicas *= static_cast<double>(left);
      Upcast(r, left, Move::Kind::kUnroll);
    }
  }

  void Order() {
    std::vector<int64_t> tile(s_.size.size());
    for (size_t r = 0; r < tile.size(); ++r) tile[r] = lanes_[r] * upcast_[r];
    const LoopOrder order = OrderLoops(s_, tile, target_, vectors_, heaviest_);
    if (order.thread >= 0) {
      moves_.push_back({Move::Kind::kThread, s_.d.ranges[order.thread].arg(0), 0});
    }
    BlockChoice blocks;
    if (heaviest_ >= 0 && room_ >= kBlockRanges) {
      blocks = ChooseBlocks(s_, s_.works[heaviest_], order, tile, vectors_, target_);
    }
    const int64_t parts = PartsOfUnits(order, blocks, tile);
    for (size_t i = 0; i < order.loops.size(); ++i) {
      const int64_t part = i == 1 && parts > 0 ? parts : i == blocks.outside ? blocks.parts : 0;
      if (part > 0)
        moves_.push_back({Move::Kind::kBlock, s_.d.ranges[order.loops[i]].arg(0), part});
      if (i == blocks.outside) {
        moves_.push_back({Move::Kind::kBlock, s_.d.ranges[blocks.folded].arg(0), blocks.amount});
      }
      moves_.push_back({Move::Kind::kOuter, s_.d.ranges[order.loops[i]].arg(0), 0});
    }
  }

  // How many iterations of the loop directly inside of the shared one are a unit of a launch, where
  // all of them would take long; else 0. See shared_loops.h.
  int64_t PartsOfUnits(const LoopOrder& order, const BlockChoice& blocks,
                       const std::vector<int64_t>& tile) const {
    if (order.thread < 0 || order.loops.size() < 2 || s_.whole != 0 || room_ < 2) return 0;
    const auto at = [&](int r) { return tile[static_cast<size_t>(r)]; };
    const auto trips = [&](int r) { return (s_.size[r] + at(r) - 1) / at(r); };
    // Blocks inside of another loop leave that one whole.
    const int loop = order.loops[1];
    if (!Has(s_.parallel, loop) || (blocks.folded >= 0 && blocks.outside != 1)) return 0;
    double cycles = 0;
    for (const Work& work : s_.works) {
      double lanes = 1;
      for (RangeSet set = work.all; set != 0; set &= set - 1) {
        lanes *= static_cast<double>(lanes_[std::countr_zero(set)]);
      }
      cycles += CyclesOf(s_, work) / lanes;
    }
    const double units = std::ceil(cycles / static_cast<double>(trips(order.thread)) /
                                   static_cast<double>(target_.unit_cycles));
    if (units < 2) return 0;
    const auto least = static_cast<double>((kMinUnitRows + at(loop) - 1) / at(loop));
    double part = std::max(least, std::ceil(static_cast<double>(trips(loop)) / units));
    if (blocks.parts > 0) part = std::min(part, static_cast<double>(blocks.parts));
    // Of about the same size. A part moved back computes again what it has in common with another.
    const auto all = static_cast<double>(trips(loop));
    auto even = static_cast<int64_t>(std::ceil(all / std::ceil(all / part)));
    while (even > 0 && !Fits(loop, even * at(loop))) --even;
    return even > 0 && even < trips(loop) ? even : 0;
  }

  const KernelShape s_;
  const Target& target_;
  const bool peels_;
  const size_t rank_;
  double predicted_ = 0;    // cycles of the heaviest work
  bool exhausted_ = false;  // there are not so many tiles
  int heaviest_ = -1;       // the work that is tiled
  int room_;                // for ranges: every split and peel makes one more
  RangeSet outer_ = 0;      // the loops that can be ordered
  RangeSet scattered_ = 0;  // in which some store is not contiguous
  RangeSet vectors_ = 0, peeled_ = 0;
  RangeSet taken_ = 0;  // of the works that have been looked at
  std::vector<int64_t> lanes_ = std::vector<int64_t>(kMaxRanges, 1);
  std::vector<int64_t> upcast_ = std::vector<int64_t>(kMaxRanges, 1);
  MoveList moves_;
};

// nullopt where nothing is around the stores: there is nothing to order or to share.
std::optional<KernelShape> ReadLoops(UOp sink, std::span<const Program::Argument> arguments) {
  return sink.src(0).is(Op::kEnd) ? ReadShape(sink, arguments) : std::nullopt;
}

}  // namespace

MoveList PickPeels(UOp sink, std::span<const Program::Argument> arguments, const Target& target) {
  std::optional<KernelShape> shape = ReadLoops(sink, arguments);
  if (!shape) return {};
  return CpuHeuristic(*std::move(shape), target, /*peels=*/true).Run();
}

std::vector<RankedMoves> RankMoves(UOp sink, std::span<const Program::Argument> arguments,
                                   const Target& target, size_t most) {
  std::vector<RankedMoves> out;
  const std::optional<KernelShape> shape = ReadLoops(sink, arguments);
  if (!shape) return {{}};
  for (size_t rank = 0; rank < most; ++rank) {
    CpuHeuristic heuristic(*shape, target, /*peels=*/false, rank);
    MoveList moves = heuristic.Run();
    if (heuristic.exhausted()) break;
    out.push_back({std::move(moves), heuristic.predicted()});
  }
  return out;
}

double PredictCycles(UOp sink, std::span<const Program::Argument> arguments, const Target& target,
                     const MoveList& moves) {
  const std::optional<KernelShape> shape = ReadLoops(sink, arguments);
  return shape ? CpuHeuristic(*shape, target, /*peels=*/false).Predict(moves) : 0;
}

MoveList PickMoves(UOp sink, std::span<const Program::Argument> arguments, const Target& target) {
  std::optional<KernelShape> shape = ReadLoops(sink, arguments);
  if (!shape) return {};
  return CpuHeuristic(*std::move(shape), target, /*peels=*/false).Run();
}

}  // namespace telegrad
