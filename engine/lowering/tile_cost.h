// What the heuristic predicts for one work with one register tile: cycles of a processor with the
// costs of its target's row (engine/types/machine_costs.h) that computes Target::vector_rate times
// in each. Nothing here chooses; tile_search.cc compares.
#pragma once

#include <cstdint>

#include "engine/lowering/kernel_shape.h"
#include "engine/types/machine_costs.h"

namespace telegrad {

inline constexpr int kMaxStride = 4;  // of lanes that are loaded as whole vectors

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

class TileCost {
 public:
  // Both outlive the object.
  TileCost(const KernelShape& shape, const Target& target);

  // Predicted cycles of all iterations; infinite where the tile does not fit.
  double Cycles(const Work& work, const Tile& tile) const;

  // Iterations of the loops of a store that are inside of all those that an operation depends on:
  // it is done once for all of them, as what a row is divided by.
  double Repeats(const Work& work, RangeSet ranges, const Tile& tile) const;

  // Whether lanes have gates of their own: the kernel's, or those of a tile that is rounded up.
  bool IsMasked(const MemoryAccess& a, const Tile& tile) const;

  // How often a reduction reads what it loads in lanes that lie apart or have gates, where the
  // loops can be ordered so that it is copied first; else 1. See stage.h.
  double ReuseOf(const Work& work, const MemoryAccess& a, const Tile& tile) const;

  // Whether the lanes of a load, or of a store, lie far apart, and no gate forbids to access more
  // of each row at once.
  bool IsFar(const MemoryAccess& a, int lanes) const;
  static bool IsScattered(const MemoryAccess& a, int lanes);

 private:
  // `reuse`: how often a load whose lanes lie far apart is read from a copy, if it is copied first.
  double LoadCycles(const MemoryAccess& a, const Tile& tile, double reuse = 1) const;

  // Whether a load of lanes is more than that of a whole vector, but for lanes that lie far apart.
  bool IsRough(const MemoryAccess& a, const Tile& tile) const;

  // How much of a vector a row of the tile fills, where lanes that lie far apart are loaded or
  // stored row by row, because the tile has neighbours of each: see engine/render/transposes.h.
  // Else 0.
  double RowShare(const MemoryAccess& a, const Tile& tile) const;

  static double AccumulatorBytes(const Work& work, const Tile& tile);

  // Whether its lanes are read from a copy of a weight, which is made once.
  bool IsPacked(const Work& work, const MemoryAccess& a, const Tile& tile) const;

  // Of the rows that a reduction walks along, an element of each at a time, the part whose lines
  // the first-level cache has lost before the next element: where rows are so far apart that their
  // lines fall onto the same few sets, more than these keep beside other operands. Where the sets
  // have no more lines, each one that is read takes the place of the one that is needed next.
  double LostShare(const Work& work, const MemoryAccess& a, const Tile& tile) const;

  // Whether each iteration of `range` reads or writes another line of a buffer that the worker's
  // cache does not keep until others come to the rest of the line.
  bool IsBeyond(const MemoryAccess& a, int range) const;

  // Whether the lanes of a tile share few sets of the first-level cache.
  bool Crowds(const MemoryAccess& a, const Tile& tile) const;

  // What the copies of a load bring into the first-level cache, where neighbours are used later.
  double BytesOf(const Work& work, const MemoryAccess& a, const Tile& tile) const;

  // Whether a load that all lanes share reads another line of the cache in each step of a
  // reduction; and the bytes of the lines that the copies of a tile read in one step.
  bool WalksLines(const Work& work, const MemoryAccess& a) const;
  double BytesOfLines(const MemoryAccess& a, const Tile& tile) const;

  // What it costs to bring an operand from beyond the worker's cache of which the tile reads less
  // than two lines of a row before the reduction goes on to the next one: nothing in that order
  // tells the processor what comes next.
  double FarCycles(const Work& work, const MemoryAccess& a, const Tile& tile) const;

  // Of other operands that do not stay in the worker's cache: each copy of `a` reads them again.
  double RereadCycles(const Work& work, const MemoryAccess& a, const Tile& tile) const;

  // Of an addition of one copy.
  double OperationCycles(const Work::Operation& o, const Tile& tile) const;

  double FoldedIterations(const Work& work, const Tile& tile) const;

  // Of the stores that a reduction's tile ends in, once for each time that the reduction is done.
  double StoreCycles(const Work& work, const Tile& tile) const;

  const KernelShape& s_;
  const Target& target_;
  const ThreadCosts& costs_;
  RangeSet outer_ = 0;      // the loops that can be ordered
  RangeSet scattered_ = 0;  // in which some store is not contiguous
  double panel_bytes_ = 0;  // that a copy of masked lanes may have, of those that the kernel copies
};

}  // namespace telegrad
