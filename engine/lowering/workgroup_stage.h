// Staging in local memory: what the threads of a workgroup read of an operand again and again is
// copied there first, by all of them together.
#pragma once

#include "engine/lowering/moves/split.h"
#include "engine/lowering/workgroup_matmul.h"

namespace telegrad {

// What is staged: of each range one tile.
struct PanelPlan {
  UOp load;
  const SplitRange &t, &k;  // the tile's range, the reduced one
  bool by_k;                // neighbours in local memory are neighbours along k, else along t
  int64_t pad;              // elements between rows, so that those do not fall onto the same banks
  int64_t slot;             // of the BUFFER
};

struct Panel {
  UOp buffer;
  UOp fill;                // the nest that copies
  int64_t step_t, step_k;  // in elements

  // Where element (t, k) of the panel is.
  UOp At(Rewriter& b, UOp t, UOp k) const;
};

// The threads of all ranges in `threads`, outermost first, fill the panel, neighbours by
// neighbours; elements that the operand does not have are 0. `loop`, if valid, is the range that
// fills it anew; `others` says what becomes of the load's other ranges, and *next_id is a free
// range id.
Panel MakePanel(Rewriter& b, const PanelPlan& plan, const std::vector<UOp>& threads, UOp loop,
                const Replacements& others, int vector_bytes, int64_t* next_id);

// A matrix product whose ranges are split.
struct StagedProduct {
  const Matmul& product;
  const Fragments* fragments;  // null: without TENSORCORE
  const SplitRange &m, &n, &k;
  std::vector<UOp> threads;
};

// Replaces what the product reads by loads from panels, which each iteration of the reduction's
// loop fills; with fragments, its REDUCE by one of matrix instructions. `with` has what becomes of
// all ranges, and gets these replacements.
void StageProduct(Rewriter& b, const Target& target, const StagedProduct& plan, int64_t* next_id,
                  Replacements* with);

}  // namespace telegrad
