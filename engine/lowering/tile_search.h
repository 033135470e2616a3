// The register tile of one work: of a few hundred, the one that is predicted to take the fewest
// cycles (tile_cost.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/tile_cost.h"
#include "engine/types/target.h"

namespace telegrad {

class TileSearch {
 public:
  // All outlive the object. `peels`: what vectors leave of a reduction is peeled off afterwards.
  TileSearch(const KernelShape& shape, const Target& target, const TileCost& cost, bool peels)
      : s_(shape), target_(target), cost_(cost), peels_(peels) {}

  // Ranges that other works have made lanes; and how many each range has.
  struct Lanes {
    RangeSet ranges = 0;
    std::span<const int64_t> widths;
  };

  // The tile at place `rank`, of which 0 is the best; nullopt where there are not so many. Lanes
  // alone where it is not `tiled`. A range that is lanes already is lanes here.
  // Tiles with one of the `avoided` amounts of a range are passed over.
  std::optional<Tile> Best(const Work& work, const Lanes& lanes_of, bool tiled, size_t rank,
                           std::span<const Tile::Part> avoided = {}) const;

  // Amounts that leave a remainder move the last tile back, which is wrong where an element may be
  // computed only once.
  bool Fits(int range, int64_t amount) const;

 private:
  // Lanes are one axis: no work may depend on two ranges of lanes.
  bool MayBeLanes(int range, RangeSet vectors) const;

  // Lanes are as many as fit into a register of the widest element that is loaded, computed or
  // stored: f16 that is computed in f32 has f32's lanes, else a tile would need twice the
  // registers.
  int64_t WidestBytes(const Work& work) const;

  // The lanes that `range` may have: powers of two.
  int64_t Width(const Work& work, int range) const;

  // The ranges along which loads whose lanes lie far apart are contiguous.
  std::vector<int> RowsOf(const Work& work, int lanes) const;

  // Whether several masked vectors of kept lanes, or one in each iteration of a window that a
  // reduction repeats, have a mask each and are not copied first. There are few registers for
  // masks.
  bool HasMasks(const Work& work, const Tile& tile) const;

  // Whether a tile of several masked vectors computes many lanes in vain that one vector would not,
  // where the masks are not a matter of a copy.
  bool Overhangs(const Work& work, const Tile& tile) const;

  // Vectors that overhang are gated, unless there are whole ones to move the last tile back over.
  bool FitsVectors(const Work& work, int range, int64_t width, int64_t vectors) const;

  const KernelShape& s_;
  const Target& target_;
  const TileCost& cost_;
  const bool peels_;
};

}  // namespace telegrad
