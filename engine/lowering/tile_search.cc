#include "engine/lowering/tile_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/lowering/order_sums.h"

namespace telegrad {
namespace {

constexpr int64_t kMinShared = 3;  // of a loop that overhangs, for each thread

// Nodes that a tile of rows may make of a kernel's: compilers take long for more.
constexpr int64_t kMostNodesOfRows = 4096;

// Of the partial sums of a float sum whose order is fixed, which may be several registers.
constexpr int64_t kMostPartialBytes = 128;

constexpr int64_t kAmounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16};

}  // namespace

std::optional<Tile> TileSearch::Best(const Work& work, const Lanes& lanes_of, bool tiled,
                                     size_t rank, std::span<const Tile::Part> avoided) const {
  Tile best;
  // A range that is lanes already is lanes here.
  const RangeSet given = work.all & lanes_of.ranges;
  if (given != 0) {
    best.lanes = std::countr_zero(given);
    best.width = lanes_of.widths[best.lanes];
    return best;
  }
  double least = cost_.Cycles(work, best);
  // A nest inside of a loop is done once at a time (moves/check.cc).
  const RangeSet kept = work.all & s_.loops & ~work.own & ~s_.whole & ~s_.around_nests;
  std::vector<int> candidates{-1};
  // The partial sums around an ordered sum are lanes, if anything of it is.
  const RangeSet partial = KeepsOrder(target_) ? work.all & s_.summed_alone : 0;
  for (RangeSet set = kept | ((work.own | partial) & ~s_.whole); set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    if (s_.size[r] > 1 && Width(work, r) > 1 && MayBeLanes(r, lanes_of.ranges))
      candidates.push_back(r);
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
    if (HasMasks(work, tile)) return;
    if (std::ranges::any_of(avoided,
                            [&](const Tile::Part& p) { return tile.Of(p.range) == p.amount; })) {
      return;
    }
    const double cycles = cost_.Cycles(work, tile);
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
    for (int64_t vectors : {1, 2, 3, 4, 7, 8, 12, 16, 24}) {
      tile.parts[0] = {lanes, vectors};
      tile.parts[1] = tile.parts[2] = {};
      if (vectors > 1) {
        const bool reuses = std::ranges::find(reused, lanes) != reused.end();
        const bool sums = tiled && work.is_reduce() && Has(kept, lanes);
        if (!(reuses || sums) || Overhangs(work, tile)) continue;
        if (!FitsVectors(work, lanes, tile.width, vectors)) continue;
      }
      consider(tile);
      for (int r : RowsOf(work, lanes)) {
        const int64_t amount = std::min(s_.size[r], tile.width);
        if (!tiled || work.is_reduce() || vectors > 1 || !Fits(r, amount)) continue;
        if (static_cast<int64_t>(s_.nodes) * amount > kMostNodesOfRows) continue;
        tile.parts[1] = {r, amount};
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
  if (rank >= ranked.size()) return std::nullopt;
  return ranked[rank].second;
}

bool TileSearch::MayBeLanes(int range, RangeSet vectors) const {
  return std::ranges::all_of(s_.works, [&](const Work& w) {
    return !Has(w.all, range) || (w.all & vectors & ~Bit(range)) == 0;
  });
}

int64_t TileSearch::WidestBytes(const Work& work) const {
  int64_t bytes = 1;
  for (const Work::Operation& o : work.operations) bytes = std::max(bytes, o.bytes);
  for (const MemoryAccess& a : work.accesses) bytes = std::max(bytes, a.bytes);
  return bytes;
}

bool TileSearch::Fits(int range, int64_t amount) const {
  const int64_t size = s_.size[range];
  return size % amount == 0 || (!s_.once && size > amount);
}

int64_t TileSearch::Width(const Work& work, int range) const {
  const int64_t most = std::max<int64_t>(1, target_.vector_bytes / WidestBytes(work));
  const int64_t size = s_.size[range];
  int64_t width = most;
  if (KeepsOrder(target_) && Has(s_.summed, range)) {
    const bool lanes = Has(s_.summed_alone, range) && size * WidestBytes(work) <= kMostPartialBytes;
    return lanes && std::has_single_bit(static_cast<uint64_t>(size)) ? size : 1;
  }
  if (Has(work.own, range)) {
    while (width > size || (!peels_ && size % width != 0)) width /= 2;
    return width;
  }
  while (width > 2 && width / 2 >= size) width /= 2;
  return size == 1 ? 1 : width;
}

std::vector<int> TileSearch::RowsOf(const Work& work, int lanes) const {
  std::vector<int> rows;
  for (const MemoryAccess& a : work.accesses) {
    if (lanes < 0) continue;
    if (!(a.store ? cost_.IsScattered(a, lanes) : !s_.once && cost_.IsFar(a, lanes))) continue;
    for (RangeSet set = a.ranges & s_.loops & ~s_.whole; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (a.stride[r] == 1 && std::ranges::find(rows, r) == rows.end()) rows.push_back(r);
    }
  }
  return rows;
}

bool TileSearch::HasMasks(const Work& work, const Tile& tile) const {
  return work.is_reduce() && Has(work.all & ~work.own, tile.lanes) &&
         std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
           return Has(a.gate, tile.lanes) && (a.gate & work.own) != 0 &&
                  (tile.Of(tile.lanes) > tile.width || s_.Iterations(work.own & ~a.gate) > 1) &&
                  tile.Copies(a.ranges | a.gate) > 1 && cost_.ReuseOf(work, a, tile) == 1;
         });
}

bool TileSearch::Overhangs(const Work& work, const Tile& tile) const {
  const int64_t size = s_.size[tile.lanes], lanes = tile.Of(tile.lanes);
  const auto computed = [&](int64_t step) { return (size + step - 1) / step * step; };
  if (computed(lanes) * 20 <= computed(tile.width) * 21) return false;
  // With a copy, the loop over lanes is the outer one: threads have to share it evenly.
  const bool shared = computed(lanes) / lanes >= kMinShared * target_.threads;
  return std::ranges::any_of(work.accesses, [&](const MemoryAccess& a) {
    return cost_.IsMasked(a, tile) && !(shared && cost_.ReuseOf(work, a, tile) > 1);
  });
}

bool TileSearch::FitsVectors(const Work& work, int range, int64_t width, int64_t vectors) const {
  const int64_t size = s_.size[range], tile = width * vectors;
  if (tile >= size) return tile - size < width;  // the whole range
  return Fits(range, tile) || (work.is_reduce() && !Has(work.own, range) && s_.whole == 0);
}

}  // namespace telegrad
