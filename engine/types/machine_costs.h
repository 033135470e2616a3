// What kinds of processors take for what programs do, and how much their caches and workgroups
// hold: the numbers by which the schedule and the lowering choose among programs that are all
// correct. They ask for the row that their target's row in targets.def names, and have no such
// number themselves.
//
// What the system says of the one processor that code is for, such as its vectors' width, its
// threads and the size of a worker's cache, is in Target.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include "engine/types/target.h"

namespace telegrad {

// Into what large reductions are cut.
struct ReductionSplit {
  int64_t few_results;    // fewer leave threads without work
  int64_t parts;          // so many parts and results together give each some
  int64_t elements;       // reducing fewer takes no longer than a second launch
  int64_t part_elements;  // so many into one result take a thread for milliseconds
};

// What the schedule weighs, in simple operations of one element of f32.
struct ScheduleCosts {
  double load_byte, store_byte;
  double launch;
  double division;  // and a square root
  double gather;    // of the access to an element whose place is computed
  // How many times as much a reduction takes inside of a sum of products, where no tile shares what
  // it loads.
  double inner_reduction;
  // The same of a reduction among the terms of the sum, which does not share the tile's lanes.
  double scalar_reduction;
  // The same of an operation among the terms on what all lanes of the tile share.
  double scalar_term;
  double near;  // recomputing what takes no more is nearer than any memory
  // Of a row that a thread keeps between two nests of a kernel, in a cache of its own.
  double near_load_byte, near_store_byte;
  double spread;  // less work is not worth spreading over threads
  double busy;    // iterations: of fewer, threads are left without work
  double shared;  // iterations: loops of fewer do not make one kernel of two
  // Of a term of a sum of products, in its tile.
  double product_term;
  // Of a byte of a value that is stored and of which others read rows and columns: with what is
  // read again from beyond the caches, and with what else the memory could be used for.
  double rows_byte;
  // Iterations of a loop that a sum of products computes together and so reads once: rows of the
  // largest register tile, and f32 of the widest vector.
  int64_t tile;
  double slice_bytes;   // that pass between two nests through the cache of one thread
  double panel_bytes;   // of an operand that a cache keeps for all of a product's tiles
  double shared_bytes;  // of one that the cache of all threads keeps for all of a row's
  int64_t row_block;    // elements of a row of scores that are reduced at a time, at most,
  int64_t least_block;  // and at least, where a mask ends a loop over blocks,
  int64_t block_step;   // and by how many blocks differ that are tried
  // What each block takes besides: its update of the row's maximum and what that rescales, in
  // elements, and how many times as much a test in each element makes of these.
  double block_update, block_test;
  int64_t kept_bytes;  // of a thread's private memory, beside its accumulators and copies
  // Rows that private memory keeps at a time, and so many at least: what one reads, the others
  // find in a cache.
  int64_t kept_rows, least_rows;
  double kept_terms;  // of sums of products inside of such rows, whose operands a cache keeps
  double dots;        // multiplications of bytes: fewer are not worth the kernels that make words
  int64_t spread_places;  // in a page: of fewer, neighbouring elements fall onto the same sets
  ReductionSplit split;
  // What an element of a convolution's transformed input, and of the products, takes, in
  // multiply-adds of one element: computing it, which reads or writes scattered memory, and moving
  // it between the kernels.
  double transformed_input, transformed_product;
  // For an element of the weight: the transformed one has 27 more bytes for each that it has, which
  // a run reads from memory.
  double transformed_weight;
};

// What one thread with vectors takes, in cycles, for targets without workgroups.
struct ThreadCosts {
  // Operations: those that are narrower than a vector take as long as one.
  double operation;
  double division, wide;  // of a division or square root, and of 8 bytes: in operations
  int64_t chains;         // accumulators that hide the latency of an addition
  double load, store;
  double unaligned;         // more, of a vector that may lie in two lines,
  int64_t aligned_bytes;    // which one of at most so many bytes seldom does
  double shuffle;           // exchanging lanes between two vectors
  double lane_sum;          // a step of adding up the lanes of one
  double lane_gate;         // a mask of lanes
  double branch;            // a test that lanes have in common
  double gather, scatter;   // of each lane, where they lie apart,
  double apart;             // and of all of them
  double copy;              // of an element, from where lanes lie apart into a copy
  double loop;              // of an iteration
  double exposed;           // of memory or arithmetic, whichever is less: the part not hidden
  double wake;              // at least, of each thread that is woken to share a loop
  double evicted;           // more, of a load that the first-level cache has lost
  double second_level;      // of a byte from the second-level cache
  double shared;            // from the cache that all workers share, of rows loaded ahead
  double missed;            // of a byte that the worker's own cache does not have,
  double missed_in_stream;  // and of one of a stream, which is loaded ahead
  double line_bytes, page_bytes;
  double first_level_bytes;  // that stay there, of what is read again and again
  double near_rows;          // bytes between rows that are loaded ahead
  double panel_bytes;        // of copies in private memory, at most
  double kept;               // of a cache: what loops read again, as others want room in it, too,
  double kept_in_stream;     // and what they do past which other operands stream, read once
  // How often a copy is read at least that is worth its loads and stores.
  double copy_reads;
  int64_t copied_rows;  // of a product, for which a copy of the other operand is made anew
  // Accumulators for each register that an operand takes which the instruction of DOT4 does not
  // repeat in all lanes by itself.
  int64_t dots_ahead;
  // Operations: of an innermost loop at most; of a reduction that gets several accumulators; and of
  // a window of which all iterations are written out, also where its masks only then are constant.
  double innermost;
  int64_t replicated;
  double unrolled, unrolled_masks;
  // Of what is read at a time where rows are pages apart: a strip is as long as what is loaded
  // ahead, of a few rows, as it begins anew in each page. Its accumulators stay in the first-level
  // cache from row to row of strips, so a tile of many gains nothing, and few lines of each row at
  // a time, a piece, keep more rows in flight.
  double strip_bytes, piece_bytes;
  int64_t strip_rows;
  // Pages whose translations a core keeps, at least: rows of no more pages are not read in strips.
  int64_t kept_pages;
  // Of a result that no other kernel reads: so many or more go past the caches, where a target has
  // such stores. Fewer are still in a cache where whoever asked for them reads them. An argument of
  // so many comes from memory.
  int64_t result_bytes;
};

// Of a matrix product: threads, or warps, and what each has of the result.
struct ProductTile {
  int64_t threads_m, threads_n, m, n, k;
  int64_t rows() const { return threads_m * m; }
  int64_t columns() const { return threads_n * n; }
};

// What suits workgroups, for targets that have them.
struct GroupCosts {
  int64_t threads, few_threads;  // of a workgroup, and of one where there is little to do
  int64_t step;                  // neighbouring threads, where the target has no warps
  double alone;                  // iterations: a thread does fewer of a reduction by itself
  int64_t elements;              // of a row for each thread at least, where there are many rows
  int64_t accumulators;          // of a thread, whose loads then need not wait for each other
  int64_t replicated;            // operations: of a reduction that gets several of these
  int64_t terms;                 // of a sum of products that are written out for one thread
  int64_t short_row;             // elements: of fewer, neighbours gain no whole sector of memory
  double busy;                   // workgroups for each processor that hide each other's waiting,
  int64_t resident;              // and those whose local memory is large: each has room for so many
  // Of a thread's access to local memory at most; also between rows there, so that these do not
  // fall onto the same banks.
  int local_bytes;
  int64_t banks;  // accesses of so many bytes that local memory takes at once
  // Whether rows there of which whole accesses are loaded as matrices have these exchanged
  // (engine/lowering/layout.h) instead of a gap.
  bool swizzles = false;
  int64_t ring;        // tiles of a product that asynchronous copies fill in turns,
  int64_t block_ring;  // and blocks of a row's keys and values
  // The same where threads copy. 2: the next tile is on its way into registers while one is
  // multiplied; 1: it is not.
  int64_t register_ring = 1;
  // In multiplications of f32 by one thread: an access that copies an operand of a product, with
  // what finds its address; and how many of a matrix instruction's take as long as one.
  double copied, instruction_rate;
  // In the same: of a processor that waits for one kernel more, and of moving an f32 to or from the
  // memory that all processors share, at the rate at which operands are copied.
  double launch, partial;
  int64_t part_keys;  // of a row of scores: fewer take less time than a kernel more
  // In the same: copying an element of a window by itself, with its gate and what finds its
  // address; and reading one of a sector of memory of which nothing else is read at the time.
  double apart, sector;
  // Of matrix instructions and of registers, the largest first.
  std::span<const ProductTile> instruction_tiles, register_tiles;
  // Of matrix instructions, also for products of fewer rows than these have: what counts there is
  // that each element of the other operand is read once.
  std::span<const ProductTile> skinny_tiles = {};
};

struct MachineCosts {
  CostRow row;
  ScheduleCosts schedule;
  ThreadCosts thread;
  GroupCosts group;
};

const MachineCosts& CostsOf(CostRow row);
inline const MachineCosts& CostsOf(const Target& target) { return CostsOf(target.costs); }

// How many lines that lie `step` bytes apart the first-level cache has room for, which finds a line
// by its place in a page.
inline int64_t LinesHeld(int64_t step, const Target& target) {
  const ThreadCosts& costs = CostsOf(target).thread;
  const auto page = static_cast<int64_t>(costs.page_bytes);
  const int64_t apart = std::gcd(step, page);
  const int64_t sets = page / std::max<int64_t>(apart, static_cast<int64_t>(costs.line_bytes));
  return sets * std::max<int64_t>(target.first_level_bytes / page, 1);
}

// Of connections between devices, whatever these are: bytes from which on 2n(n-1) transfers of
// parts are cheaper than 2(n-1) of everything, and from which on what an all-to-all has to hold on
// each device at once is more than it saves in steps.
struct LinkCosts {
  int64_t parts_bytes, ring_bytes;
};
inline constexpr LinkCosts kLinkCosts{int64_t{64} << 10, int64_t{64} << 20};

}  // namespace telegrad
