#include "engine/lowering/tile_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/lowering/block_choice.h"
#include "engine/lowering/loop_order.h"
#include "engine/lowering/stage.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxBlocks = 8;  // that a panel of windows is copied in
constexpr int64_t kSquares = 8;    // in a row of a block's panel

// Other operands want some, too.
int64_t LinesKept(int64_t step, const Target& target) {
  return static_cast<int64_t>(static_cast<double>(LinesHeld(step, target)) *
                              CostsOf(target).thread.kept);
}

// VPDPBUSD repeats an element of memory in all lanes only for its signed factor. An unsigned one
// takes a register, and those that the next terms need, as neighbours under a window, are loaded
// ahead.
bool RepeatsUnsigned(const Work& work, const Tile& tile) {
  const UOp dot = work.root.src(0);
  if (!dot.is(Op::kDot4) || !dot.src(0).is(Op::kLoad)) return false;
  return std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
    return a.address == dot.src(0).src(0) && tile.lanes >= 0 && (a.ranges >> tile.lanes & 1) == 0;
  });
}

}  // namespace

TileCost::TileCost(const KernelShape& shape, const Target& target)
    : s_(shape), target_(target), costs_(CostsOf(target).thread) {
  for (int r : s_.outer) outer_ |= Bit(r);
  // What a kernel copies is in memory at the same time.
  const auto copying = std::ranges::count_if(s_.works, [](const Work& work) {
    return work.is_reduce() &&
           std::ranges::any_of(work.accesses, [](const MemoryAccess& a) { return a.gate != 0; });
  });
  panel_bytes_ = PanelBytes(target) / static_cast<double>(std::max<int64_t>(copying, 1));
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
  if (std::isinf(reuse) && Has(a.ranges, tile.lanes)) return costs_.load;
  if (reuse > 1 && IsRough(a, tile))
    return costs_.load + (LoadCycles(a, tile) + costs_.store) / reuse;
  double gate = 0;
  if (IsMasked(a, tile)) {
    gate = costs_.lane_gate;
  } else if (a.gate != 0) {
    // One test for all copies of a tile that share it, as the elements of a window's row do.
    const bool shared = a.rows < 0 || (a.row % tile.Of(a.rows) == 0);
    gate = costs_.branch / (shared ? static_cast<double>(tile.Copies(a.ranges)) : 1);
  }
  if (!Has(a.ranges, tile.lanes)) {
    const bool far = tile.lanes < 0 && !s_.outer.empty() && IsBeyond(a, s_.outer.back());
    return costs_.load + gate + (far ? costs_.line_bytes * costs_.second_level : 0);
  }
  const int64_t stride = a.stride[tile.lanes];
  if (stride == 1)
    return costs_.load + (tile.width * a.bytes > costs_.aligned_bytes ? costs_.unaligned : 0) +
           gate;
  if (stride > 1 && stride <= kMaxStride && !a.store) {
    return static_cast<double>(stride) * (costs_.load + costs_.unaligned + costs_.shuffle) + gate;
  }
  const double exchanges = std::max(costs_.shuffle, 1.0 / target_.vector_rate) *
                           std::log2(static_cast<double>(tile.width));
  if (reuse > 1) return costs_.load + (2 * costs_.load + exchanges) / reuse;
  if (const double used = RowShare(a, tile); used > 0) {
    // A row begins anywhere, so that it lies in two lines.
    return (2 * (a.store ? costs_.store : costs_.load) + exchanges) / used;
  }
  double lane = a.store ? costs_.scatter : costs_.gather;
  if (Crowds(a, tile) && a.store) {
    lane += costs_.evicted;
  } else if (Crowds(a, tile) || IsBeyond(a, tile.lanes)) {
    lane += costs_.line_bytes * costs_.second_level;  // loads do not wait for each other
  }
  return static_cast<double>(tile.width) * lane + costs_.apart;
}

bool TileCost::IsBeyond(const MemoryAccess& a, int range) const {
  const int64_t stride = a.stride[range];
  return stride != kIrregular && a.buffer_bytes > static_cast<double>(target_.cache_bytes) &&
         static_cast<double>(std::abs(stride) * a.bytes) >= costs_.line_bytes;
}

bool TileCost::Crowds(const MemoryAccess& a, const Tile& tile) const {
  const int64_t stride = a.stride[tile.lanes];
  return stride != kIrregular && tile.Of(tile.lanes) > LinesKept(stride * a.bytes, target_);
}

bool TileCost::IsMasked(const MemoryAccess& a, const Tile& tile) const {
  if (Has(a.gate, tile.lanes)) return true;
  return s_.once && Has(a.ranges, tile.lanes) && s_.size[tile.lanes] % tile.Of(tile.lanes) != 0;
}

bool TileCost::IsRough(const MemoryAccess& a, const Tile& tile) const {
  if (a.store || !Has(a.ranges, tile.lanes)) return false;
  return IsMasked(a, tile) || (a.stride[tile.lanes] != 1 && a.stride[tile.lanes] <= kMaxStride);
}

double TileCost::RowShare(const MemoryAccess& a, const Tile& tile) const {
  if (tile.lanes < 0 || a.gate != 0 || a.stride[tile.lanes] <= kMaxStride) return 0;
  if (s_.once && !a.store) return 0;
  // A tile that is rounded up has gates of its own.
  if (IsMasked(a, tile) || s_.size[tile.lanes] < tile.Of(tile.lanes)) return 0;
  for (const Tile::Part& p : tile.parts) {
    if (p.range < 0 || p.range == tile.lanes || a.stride[p.range] != 1) continue;
    if (p.amount < kLeastRow || s_.size[p.range] < p.amount) continue;
    const int64_t rest = p.amount % tile.width;
    if (rest != 0 && (rest < kLeastRow || !target_.masks_rows(a.store, a.bytes))) return 0;
    const int64_t vectors = (p.amount + tile.width - 1) / tile.width;
    return static_cast<double>(p.amount) / static_cast<double>(vectors * tile.width);
  }
  return 0;
}

double TileCost::AccumulatorBytes(const Work& work, const Tile& tile) {
  return static_cast<double>(tile.Copies(~RangeSet{0}) * tile.width * ByteSize(work.root.dtype()));
}

double TileCost::ReuseOf(const Work& work, const MemoryAccess& a, const Tile& tile) const {
  if (!work.is_reduce() || tile.lanes < 0) return 1;
  if (IsPacked(work, a, tile)) return HUGE_VAL;
  const bool rough = IsRough(a, tile) && s_.whole == 0;
  const bool far = IsFar(a, tile.lanes) && !IsMasked(a, tile);
  if (!rough && !far) return 1;
  const RangeSet kept = work.all & ~work.own, panel_of = a.ranges | a.gate;
  if (s_.outer.size() > kMaxOrdered || !Has(kept, tile.lanes)) return 1;
  double reuse = 1;
  for (RangeSet set = kept & ~panel_of; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    reuse *= std::floor(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
  }
  if (reuse < costs_.copy_reads) return 1;
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
    if (bytes <= panel_bytes_) return reuse;
    // A block of the longest reduced range at a time, if the cache has room for the accumulators
    // of as many tiles as make it worth a copy (block_choice.cc).
    int64_t longest = 1;
    for (RangeSet set = work.own; set != 0; set &= set - 1) {
      longest = std::max(longest, s_.size[std::countr_zero(set)]);
    }
    const bool alone = panel_bytes_ == PanelBytes(target_);
    const bool blocks = alone && inner == 0 && kMaxBlocks * PanelBytes(target_) >= bytes &&
                        longest >= kMaxBlocks * kSquares &&
                        costs_.copy_reads * AccumulatorBytes(work, tile) <= PartBytes(target_);
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
  if (Has(work.own, tile.lanes) || !Has(a.ranges, tile.lanes) || IsMasked(a, tile)) return false;
  if (!s_.IsPackable(work, a) || s_.outer.size() > kMaxOrdered) return false;
  // Of two operands that no kernel writes, the one whose lanes are the result's is the weight.
  return !Has(scattered_, tile.lanes) ||
         std::ranges::none_of(work.accesses, [&](const MemoryAccess& other) {
           return &other != &a && s_.IsPackable(work, other);
         });
}

bool TileCost::IsFar(const MemoryAccess& a, int lanes) const {
  return !a.store && a.gate == 0 && a.stride[lanes] > kMaxStride;
}

bool TileCost::IsScattered(const MemoryAccess& a, int lanes) {
  return a.store && a.gate == 0 && a.stride[lanes] > kMaxStride;
}

double TileCost::LostShare(const Work& work, const MemoryAccess& a, const Tile& tile) const {
  if (!work.is_reduce() || a.store || Has(a.ranges, tile.lanes)) return 0;
  bool along = false;
  for (RangeSet set = work.own & a.ranges; set != 0; set &= set - 1) {
    along |= a.stride[std::countr_zero(set)] == 1;
  }
  if (!along) return 0;
  double lost = 0;
  for (const Tile::Part& p : tile.parts) {
    if (p.range < 0 || a.stride[p.range] == 0 || a.stride[p.range] == kIrregular) continue;
    const int64_t step = a.stride[p.range] * a.bytes, kept = LinesKept(step, target_);
    if (p.amount <= kept) continue;
    lost =
        std::max(lost, p.amount >= LinesHeld(step, target_)
                           ? 1
                           : static_cast<double>(p.amount - kept) / static_cast<double>(p.amount));
  }
  return lost;
}

double TileCost::BytesOf(const Work& work, const MemoryAccess& a, const Tile& tile) const {
  const int64_t stride = tile.lanes < 0 ? 0 : a.stride[tile.lanes];
  const auto bytes = static_cast<double>(a.bytes), width = static_cast<double>(tile.width);
  const auto copies = static_cast<double>(tile.Copies(a.ranges));
  if (stride == 0) return WalksLines(work, a) ? BytesOfLines(a, tile) : copies * bytes;
  if (RowShare(a, tile) > 0) return copies * bytes * width;
  if (stride == kIrregular) return copies * width * costs_.line_bytes;
  return copies * width *
         std::min(costs_.line_bytes, bytes * static_cast<double>(std::abs(stride)));
}

bool TileCost::WalksLines(const Work& work, const MemoryAccess& a) const {
  if (!work.is_reduce() || (a.ranges & work.own) == 0 || s_.IsPackable(work, a)) return false;
  for (RangeSet set = work.own & a.ranges; set != 0; set &= set - 1) {
    const int64_t step = a.stride[std::countr_zero(set)];
    if (step != kIrregular && static_cast<double>(std::abs(step) * a.bytes) < costs_.line_bytes) {
      return false;
    }
  }
  return true;
}

double TileCost::BytesOfLines(const MemoryAccess& a, const Tile& tile) const {
  double rows = 1, row = static_cast<double>(a.bytes);
  for (const Tile::Part& p : tile.parts) {
    if (!Has(a.ranges, p.range)) continue;
    const int64_t step = a.stride[p.range];
    const double span = step == kIrregular ? HUGE_VAL
                                           : static_cast<double>(std::abs(step) * a.bytes) *
                                                 static_cast<double>(p.amount);
    if (span <= 2 * costs_.line_bytes) {
      row = std::max(row, span);
    } else {
      rows *= static_cast<double>(p.amount);
    }
  }
  return rows * std::ceil(row / costs_.line_bytes) * costs_.line_bytes;
}

double TileCost::Cycles(const Work& work, const Tile& tile) const {
  double memory = 0, compute = 0, operations = 0, stores = 0, bytes = 0, again = 0;
  int64_t operands = 0, longest = 0, tested = 0;
  for (const MemoryAccess& a : work.accesses) {
    const double reuse = ReuseOf(work, a, tile);
    const double one = LoadCycles(a, tile, reuse) + LostShare(work, a, tile) * costs_.evicted;
    const double cycles = static_cast<double>(tile.Copies(a.ranges)) * one;
    (a.store ? stores : memory) += cycles;
    if (a.store) continue;
    if (reuse > 1 && !std::isinf(reuse) && IsRough(a, tile)) again += RereadCycles(work, a, tile);
    if (reuse == 1) again += FarCycles(work, a, tile);
    bytes += reuse > 1 ? static_cast<double>(tile.Copies(a.ranges) * a.bytes * tile.width)
                       : BytesOf(work, a, tile);
    operands += tile.Copies(a.ranges);
    longest = std::max(longest, tile.Copies(a.ranges));
    // Loads behind a test keep a register each until it is over.
    if (a.gate != 0 && !Has(a.ranges | a.gate, tile.lanes)) tested += tile.Copies(a.ranges);
  }
  for (const Work::Operation& o : work.operations) {
    const double copies = o.cost * static_cast<double>(tile.Copies(o.ranges));
    operations += copies / Repeats(work, o.ranges, tile);
    compute += OperationCycles(o, tile) * copies / Repeats(work, o.ranges, tile);
  }
  const int64_t values = tile.Copies(~RangeSet{0});
  if (work.is_reduce()) {
    // Of the operand that has the most copies, one is live at a time.
    int64_t registers = values + operands - longest + tested + 1;
    if (RepeatsUnsigned(work, tile)) registers += values / costs_.dots_ahead;
    if (values > 1 && registers > target_.vector_registers) return HUGE_VAL;
  } else {
    memory += stores;
  }
  if (operations > costs_.innermost) return HUGE_VAL;
  double iterations = 1;
  for (RangeSet set = work.all; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    iterations *= std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile.Of(r)));
  }
  // What a reduction walks over seldom stays in the first-level cache until the next tile.
  if (work.is_reduce() && FoldedIterations(work, tile) * bytes > costs_.first_level_bytes) {
    memory += bytes * costs_.second_level;
  }
  const double one =
      std::max(memory, compute) + costs_.exposed * std::min(memory, compute) + costs_.loop;
  double total = iterations * one + again;
  // What a reduced result costs to store, and to add up over its lanes.
  if (work.is_reduce())
    total += iterations / FoldedIterations(work, tile) * StoreCycles(work, tile);
  return total;
}

double TileCost::OperationCycles(const Work::Operation& o, const Tile& tile) const {
  const int64_t lanes = Has(o.ranges, tile.lanes) ? tile.width : 1;
  const double vectors = static_cast<double>(lanes * o.bytes) / target_.vector_bytes;
  return std::max(costs_.operation, std::min(vectors, 1.0) / target_.vector_rate);
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
    cycles += (copies - 1) * bytes * costs_.shared;
  }
  return cycles;
}

double TileCost::FarCycles(const Work& work, const MemoryAccess& a, const Tile& tile) const {
  if (!WalksLines(work, a) || a.buffer_bytes <= static_cast<double>(target_.cache_bytes)) return 0;
  int64_t row = 1;
  for (RangeSet set = a.ranges; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    if (a.stride[r] == 1) row = std::max(row, tile.Of(r));
  }
  const bool near = static_cast<double>(row * a.bytes) >= 2 * costs_.line_bytes;
  return near ? 0 : costs_.missed * a.buffer_bytes;
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
    return static_cast<double>(tile.Copies(kept)) * costs_.lane_sum *
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
