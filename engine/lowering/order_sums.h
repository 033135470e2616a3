// The order in which a deterministic target adds floats.
//
// Every REDUCE of floats by ADD or MUL starts from its identity and takes its terms one after the
// other, the last of its ranges fastest. Moves keep that order (moves/check.cc), so neither a tile
// nor a list that a search has found changes a bit. A long sum of single values, as of a row, would
// then wait for each of its additions: OrderSums makes a fixed number of interleaved partial sums
// of it, which are lanes of a vector where that is faster, and are added in their order. A sum of
// products stays one sequence: its vectors and accumulators are other results.
#pragma once

#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// Whether the target keeps the order of terms where it matters.
bool KeepsOrder(const Target& target);

// Whether this is a REDUCE whose result depends on the order of its terms.
bool IsOrderedSum(UOp reduce);

// How many partial sums: as many as fill a vector of 64 bytes, whatever the target has.
int64_t PartialSums(DType dtype);

// REDUCE(x[r]) of n = P q + t terms becomes
//
//   REDUCE over p < P (REDUCE over i < q (x[i P + p])) + REDUCE over j < t (x[P q + j])
//
// where r is the last of the ranges and n is at least 2 P. Other ranges stand before i and j.
UOp OrderSums(Rewriter& b, UOp sink);

}  // namespace telegrad
