#include "engine/lowering/tile_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "engine/lowering/block_choice.h"
#include "engine/lowering/loop_order.h"
#include "engine/lowering/stage.h"

namespace telegrad {
namespace {

constexpr double kMaxReplicated = 4000;  // operations in the innermost loop, of all replicas

// Cycles, of a processor that loads twice and computes twice in each.
constexpr double kLoad = 0.5, kStore = 1, kComputing = 0.5, kUnaligned = 0.3, kShuffle = 0.8;
constexpr double kLaneGate = 0.7, kBranch = 1.5, kGather = 0.8;
constexpr double kLoop = 1.5;  // of an iteration
constexpr int64_t kPage = 4096;
constexpr double kEvicted = 4;  // of a load that the first-level cache has lost
constexpr double kSecondLevelCyclesPerByte = 1.0 / 20;  // from the second-level cache
// From the cache that all workers share, of rows that the processor loads ahead.
constexpr double kSharedCyclesPerByte = 1.0 / 60;
constexpr int64_t kMaxBlocks = 8;  // that a panel of windows is copied in
constexpr int kMaxStride = 4;      // of lanes that are loaded as whole vectors
constexpr int64_t kSquares = 8;    // in a row of a block's panel

}  // namespace

TileCost::TileCost(const KernelShape& shape, const Target& target) : s_(shape), target_(target) {
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

double TileCost::Repeats(const Work& work, RangeSet ranges, const Tile& tile) const {
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

double TileCost::LoadCycles(const MemoryAccess& a, const Tile& tile, double reuse) const {
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

bool TileCost::IsMasked(const MemoryAccess& a, const Tile& tile) const {
  if (Has(a.gate, tile.lanes)) return true;
  return s_.once && Has(a.ranges, tile.lanes) && s_.size[tile.lanes] % tile.Of(tile.lanes) != 0;
}

bool TileCost::IsRough(const MemoryAccess& a, const Tile& tile) const {
  if (a.store || !Has(a.ranges, tile.lanes)) return false;
  return IsMasked(a, tile) || (a.stride[tile.lanes] != 1 && a.stride[tile.lanes] <= kMaxStride);
}

bool TileCost::IsSquare(const MemoryAccess& a, const Tile& tile) const {
  return tile.lanes >= 0 && IsFar(a, tile.lanes) &&
         std::ranges::any_of(tile.parts, [&](const Tile::Part& p) {
           return p.range >= 0 && p.range != tile.lanes && a.stride[p.range] == 1 &&
                  p.amount % tile.width == 0;
         });
}

double TileCost::AccumulatorBytes(const Work& work, const Tile& tile) {
  return static_cast<double>(tile.Copies(~RangeSet{0}) * tile.width * ByteSize(work.root.dtype()));
}

double TileCost::ReuseOf(const Work& work, const MemoryAccess& a, const Tile& tile) const {
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
    // A block of the longest reduced range at a time, if the cache has room for the accumulators
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

bool TileCost::IsPacked(const Work& work, const MemoryAccess& a, const Tile& tile) const {
  return !Has(work.own, tile.lanes) && Has(a.ranges, tile.lanes) && s_.IsPackable(work, a) &&
         !Has(scattered_, tile.lanes) && s_.outer.size() <= kMaxOrdered;
}

bool TileCost::IsFar(const MemoryAccess& a, int lanes) const {
  return !a.store && a.gate == 0 && !s_.once && a.stride[lanes] > kMaxStride;
}

bool TileCost::Conflicts(const Work& work, const MemoryAccess& a, const Tile& tile) const {
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

double TileCost::BytesOf(const MemoryAccess& a, const Tile& tile) const {
  const int64_t stride = tile.lanes < 0 ? 0 : a.stride[tile.lanes];
  const auto bytes = static_cast<double>(a.bytes), width = static_cast<double>(tile.width);
  if (stride == 0) return bytes;
  if (IsSquare(a, tile)) return bytes * width;
  if (stride == kIrregular) return width * kLineBytes;
  return width * std::min(kLineBytes, bytes * static_cast<double>(std::abs(stride)));
}

double TileCost::Cycles(const Work& work, const Tile& tile) const {
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
    compute += kComputing * o.cost * static_cast<double>(tile.Copies(o.ranges)) /
               Repeats(work, o.ranges, tile);
  }
  const int64_t values = tile.Copies(~RangeSet{0});
  if (work.is_reduce()) {
    const int64_t registers = values + (loads > 1 ? operands : 0) + 1;
    if (values > 1 && registers > target_.vector_registers) return HUGE_VAL;
  } else {
    memory += stores;
  }
  if (compute / kComputing > kMaxReplicated) return HUGE_VAL;
  double iterations = 1;
  for (RangeSet set = work.all; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    iterations *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
  }
  // What a reduction walks over seldom stays in the first-level cache until the next tile.
  if (work.is_reduce() && FoldedIterations(work, tile) * bytes > kFirstLevelCacheBytes) {
    memory = std::max(memory, bytes * kSecondLevelCyclesPerByte);
  }
  const double one = std::max(memory, compute) + 0.2 * std::min(memory, compute) + kLoop;
  double total = iterations * one + again;
  // What a reduced result costs to store, and to add up over its lanes.
  if (work.is_reduce())
    total += iterations / FoldedIterations(work, tile) * StoreCycles(work, tile);
  return total;
}

double TileCost::RereadCycles(const Work& work, const MemoryAccess& a, const Tile& tile) const {
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

double TileCost::FoldedIterations(const Work& work, const Tile& tile) const {
  double n = 1;
  for (RangeSet set = work.own; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    n *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
  }
  return n;
}

double TileCost::StoreCycles(const Work& work, const Tile& tile) const {
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

}  // namespace telegrad
