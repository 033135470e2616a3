// What is staged (staging.h) for workgroups: the tiles of a product's operands, in local memory,
// which all threads copy together and read again and again.
#pragma once

#include "engine/lowering/moves/split.h"
#include "engine/lowering/staging.h"
#include "engine/lowering/workgroup_matmul.h"

namespace telegrad {

// How rows lie in local memory: bytes between them, and of what a thread accesses at once at most;
// how many such accesses all banks take; and whether rows are exchanged in place of the gap.
struct RowBytes {
  int64_t gap, chunk, banks;
  bool swizzles = false;
};

// What of an operand is copied into local memory.
struct PanelPlan {
  UOp load;
  const SplitRange &t, &k;                 // the tile's range, and what is reduced
  const std::vector<UOp>&threads, &loops;  // outermost first: that copy, and that fill it anew
  int64_t slot = 0;                        // of the BUFFER
  int64_t ring = 1;
  bool counts_reduced = true;  // whether the innermost loop counts tiles of k, else of t
};

// An operand's tile: of the tile's range t, and of the reduced range k.
struct Panel {
  Staging staging;
  bool by_k;  // rows in local memory run along k, else along t
  StagedTile tile = {};

  // Where element (t, k) of the tile is, from the tile's first on.
  UOp At(Rewriter& b, UOp t, UOp k) const;
  // The element (t, k) further on than the one that the kernel reads.
  UOp AtFrom(Rewriter& b, UOp t, UOp k) const;
};
Panel PanelOf(Rewriter& b, const PanelPlan& plan, bool by_k, const RowBytes& bytes);

// What a thread reads at once along what is reduced: neighbours of its fragment, or where matrices
// are loaded by rows, a row.
int64_t BytesAlongReduced(const MmaInfo& mma, size_t operand, DType dtype);
// A fragment of so many elements, as a vector, of the panel's operand.
UOp ReadFragment(Rewriter& b, const Panel& panel, const FragmentPlace& at, int64_t elements);

// A matrix product whose ranges are split.
struct StagedProduct {
  const Matmul& product;
  const Fragments* fragments;  // null: without TENSORCORE
  const SplitRange &m, &n, &k;
  std::vector<UOp> threads;  // outermost first
  std::vector<UOp> loops;    // around the product, then its own; outermost first
  // Tiles of each operand in local memory, of which later ones are copied asynchronously while the
  // one of an iteration is multiplied; 1: threads copy the iteration's own.
  int64_t ring;
};

// Replaces what the product reads by loads from panels, which each iteration of the loops fills;
// with fragments, its REDUCE by one of matrix instructions. Elements that an operand does not have
// are 0. `with` has what becomes of all ranges, and gets these replacements; *next_id is a free
// number for a RANGE.
void StageProduct(Rewriter& b, const Target& target, const StagedProduct& plan, int64_t* next_id,
                  Replacements* with);

}  // namespace telegrad
