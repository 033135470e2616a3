// In which order a buffer has the elements of a tile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// An axis of a tile: how many iterations there are, and how many elements are left free behind them
// wherever the axis around it takes a step, so that what is neighbouring there falls onto other
// banks.
struct LayoutAxis {
  int64_t size = 1, gap = 0;
};

// In place of gaps, the chunks of neighbouring elements of a row are exchanged: chunk c of row r is
// where chunk c ^ (r / rows % chunks) would be. `chunks` is a power of two that divides those of a
// row.
struct Swizzle {
  int64_t chunk = 0;  // elements; 0: nothing is exchanged
  int64_t rows = 1, chunks = 1;
};

struct Layout {
  std::vector<LayoutAxis> axes = {};  // outermost first: along the last one elements are neighbours
  Swizzle swizzle = {};  // of rows along the last axis, of which the one around it counts

  // Of the buffer, with all gaps.
  int64_t elements() const;
  // The number of the element at `place`, a position along each axis.
  UOp At(Rewriter& b, std::span<const UOp> place) const;
  // One step of that: `number` is that of the axes around the one at which `place` ends.
  UOp Step(Rewriter& b, UOp number, std::span<const UOp> place) const;
};

// Of rows of so many elements, of which one chunk each is accessed in several neighbouring rows at
// once: these fall onto different ones of the `banks` chunks that memory accesses at once. nullopt:
// rows do not have a power of two of chunks.
std::optional<Swizzle> SwizzleOf(int64_t row, int64_t chunk, int64_t banks);

// Among `group` rows, those that are `step` apart are stored after each other.
struct RowOrder {
  int64_t group = 1, step = 1;

  UOp RowAt(Rewriter& b, UOp n) const;  // the row that is the n-th to be stored
};

// An order in which rows that are stored at once fall onto different ones of the `banks` chunks
// that memory accesses at once, a power of two, as far as there is one. Of rows of c chunks and a
// gap as wide as one, a row begins c + 1 chunks behind the one before, so every c-th has its banks
// for itself where c is even. Where rows begin at multiples of half a chunk, twice as many threads
// store half a chunk each at once; of rows of half of the banks and a gap of half a chunk, these
// are two neighbours, and the two rows `banks` further on.
RowOrder OrderOf(int64_t row_chunks, int64_t lanes, int64_t gap, int64_t banks);

}  // namespace telegrad
