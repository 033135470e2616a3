// What is staged (staging.h) for workgroups: the tiles of a product's operands, in local memory,
// which all threads copy together and read again and again.
#pragma once

#include "engine/lowering/moves/split.h"
#include "engine/lowering/workgroup_matmul.h"

namespace telegrad {

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
