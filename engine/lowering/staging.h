// Staging: a tile of a value is put into a buffer of its own at some level of the loops, and read
// from there. A Staging says what is copied where, and in which order; stage.h chooses such values
// for processors, workgroup_stage.h for workgroups, block.h for accumulators. All that follows from
// one is made here: the buffer, the loops that copy, what waits for them, and the addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/lowering/layout.h"
#include "engine/lowering/substitute.h"

namespace telegrad {

// A loop of a thread that copies a tile by itself.
struct CopyLoop {
  AxisType type;
  int64_t size;
};

// What an axis of the layout is of the kernel.
struct StagedAxis {
  UOp range;       // that the value depends on
  UOp read = {};   // where along it the kernel reads the buffer; invalid: other code reads it
  UOp tile = {};   // the number of the tile of the range; invalid: the buffer has all iterations
  int64_t of = 0;  // iterations that the range has: those beyond are not copied; 0: no tile has any
  std::vector<CopyLoop> loops = {};  // one or more, outermost first; of threads together none
};

// Threads of a workgroup that copy a tile together: each takes a chunk of neighbouring elements at
// a time.
struct SharedCopy {
  std::vector<UOp> threads;  // outermost first; none: there is one thread
  size_t along = 0;          // the axis along which chunks run
  int64_t chunk = 1;         // elements
  int64_t banks = 1;         // chunks of the widest access that local memory takes at once
};

// A ring of so many tiles passes through the registers of threads.
inline constexpr int64_t kRingOfRegisters = 2;

struct Staging {
  DType dtype;
  // The LOAD of what is copied, whose gate the copy has; invalid: all elements are `constant`, a
  // word of the type.
  UOp value = {};
  int64_t constant = 0;
  AddressSpace space = AddressSpace::kRegister;
  int64_t slot = 0;                       // of the BUFFER
  Layout layout = {};                     // of one tile
  std::vector<StagedAxis> axes = {};      // of the layout
  std::vector<UOp> own = {};              // each iteration of these ranges has a buffer of its own
  std::vector<UOp> anew = {};             // and of these fills it anew; outermost first
  std::optional<SharedCopy> shared = {};  // nullopt: each thread copies a tile of its own
  // Tiles in the buffer, which are filled in turns; they follow each other along the axis
  // `ring_axis`, and the last of `anew` counts them.
  //   1     what copies a tile stores it before it is read
  //   2     threads load the next tile into registers while they read one, and store it then
  //   more  asynchronous copies, of which those under way are of later tiles than that which is
  //   read
  int64_t ring = 1;
  size_t ring_axis = 0;
};

// The BUFFER, as it is in an iteration of the ranges that have one of their own.
UOp StagedMemory(Graph& g, const Staging& s);

// The accumulators of a reduction: a buffer that is filled once and added to in loops.
struct Accumulators {
  UOp memory, init;                // the StagedMemory, and what fills it with the identity
  std::span<const UOp> loops;      // of the reduction, outermost first,
  std::span<const UOp> kept = {};  // and inside of them those that have an accumulator each
  UOp at, read;                    // the number of one there, and behind all loops
};

// The LOAD of an accumulator behind the loops, in which `fold` makes the new value of the one at an
// INDEX.
UOp Accumulate(Graph& g, const Accumulators& a, const std::function<UOp(UOp)>& fold);

// The nest that fills a tile, and the number in it of the element that the kernel reads: layout.At
// what the axes' `read` say.
struct TileFill {
  UOp nest, read;
};

// `memory` is filled. `others` has what else becomes of ranges that the value depends on; *next_id
// is a free number for a RANGE.
TileFill FillTile(Rewriter& b, const Staging& s, UOp memory, const Replacements& others,
                  int64_t* next_id);

// A tile that is filled: the element at place p is at `first` + layout.At(p) of `memory`.
struct StagedTile {
  UOp memory;  // behind all that fills it
  UOp first;   // of a ring: where the tile of the iteration begins; else 0
  UOp read;    // as of its TileFill

  UOp Load(Rewriter& b) const;  // the element that the kernel reads
};

// Tiles that are read together, all of the same ring.
std::vector<StagedTile> StageTiles(Rewriter& b, std::span<const Staging> tiles,
                                   const Replacements& others, int64_t* next_id);

}  // namespace telegrad
