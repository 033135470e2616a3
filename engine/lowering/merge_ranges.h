// Ranges that every access walks as one.
#pragma once

#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// Merges neighbouring ranges that every access walks as one. Only where that saves lanes, and where
// the gates of a reduction's windows are all that can tell them apart, gates get both from their
// product.
UOp MergeRanges(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
