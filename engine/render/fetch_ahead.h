// Weights are read from memory in every run, because all data that a run uses between two of their
// uses is larger than the caches. A packed copy is read panel by panel, in order: while a reduction
// reads one panel, it can prefetch the next one. A matrix that is multiplied by a vector is read
// once, a part of each row at a time: the part of a later row can be prefetched, which a processor
// that follows contiguous reads alone does not do. So can what the next tile of a matrix reads of
// each row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/types/target.h"

namespace telegrad {

// What an iteration of the innermost loop asks for, of the panel that the next iteration of some
// loop around it reads.
struct FetchAhead {
  using Terms = std::vector<std::pair<UOp, int64_t>>;  // of a sum: a RANGE, how often
  Terms panel;           // where the next panel begins, in elements, plus
  int64_t constant = 0;  // this; from the end of the copy on, it is the first one
  Terms bytes;           // how far beyond that: always within the panel
  int64_t lines = 1;     // neighbours from there on
};

inline constexpr int64_t kFetchedLineBytes = 64;

// `index`: of a load from a copy of `elements`, inside of `loops`, outermost first. nullopt where
// none of the loops goes on from panel to panel or the innermost one is not a reduction, and where
// it would cost more than it saves: where the target's cache has no room for the next panel, or
// where a panel, or the copy, is read so often that the first time is no matter.
std::optional<FetchAhead> PlanFetchAhead(UOp index, std::span<const UOp> loops, int64_t elements,
                                         int64_t element_bytes, const Target& target);

// `index`: of a load of neighbouring lanes from an argument of `elements` inside of `loops`,
// outermost first. `others`: the indices of all loads from the argument there. How many elements
// beyond it a later iteration reads, which is worth a prefetch; nullopt where elements are read
// more than once, where what is read is contiguous, and where the argument is so small that a cache
// may still have it.
std::optional<int64_t> PlanRowAhead(UOp index, std::span<const UOp> others,
                                    std::span<const UOp> loops, int64_t elements,
                                    int64_t element_bytes, const Target& target);

// A loop that reads an argument on without a gap.
struct StreamLoop {
  bool first = true, last = true;  // of the loops beside each other that read the argument
  bool much = true;                // it computes much for each element
};

// `index`, `others` and `loops` as above, of which `loop` is the innermost. How many elements
// beyond it lies what is read later, where the loop reads each element once: a processor follows
// such reads to the end of a page, and loops that compute much wait for each page's beginning. Of a
// row that several loops read and the cache keeps, only the last one asks for a later row: it
// computes what the others were for. If that is not much, it asks where the argument is so large
// that it comes from memory.
std::optional<int64_t> PlanStreamAhead(UOp index, std::span<const UOp> others,
                                       std::span<const UOp> loops, const StreamLoop& loop,
                                       int64_t elements, int64_t element_bytes,
                                       const Target& target);

// What an iteration of a reduction asks for, of what the next tile reads in the same iteration.
struct TileAhead {
  int64_t last = 0;   // elements from the load at hand to the last one that the next tile reads
  int64_t lines = 1;  // of memory, this one's and those before it
};

// `index`: of a load from an argument of `elements` inside of `loops`, outermost first, whose
// innermost one is a reduction of which each iteration reads another row, as the sum over the
// channels of an image does: of each row a tile reads a few lines, which a processor that follows
// contiguous reads does not fetch ahead. `others`: the indices of all loads from the argument
// there. nullopt where rows are contiguous, where no loop goes on from tile to tile, where a tile
// is read so often that the first time is no matter, and where a cache may still have the argument.
std::optional<TileAhead> PlanTileAhead(UOp index, std::span<const UOp> others,
                                       std::span<const UOp> loops, int64_t elements,
                                       int64_t element_bytes, const Target& target);

}  // namespace telegrad
