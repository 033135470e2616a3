// An operand of a product that is computed from several elements of one weight, such as the
// transformed window of a convolution, is computed once for many runs: it becomes a new argument,
// and the piece's packings name the kernel that makes it, which `stage` may change to make it in
// the order in which it is read.
#pragma once

#include "engine/rewrite/pass.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

absl::StatusOr<UOp> DeriveWeights(Rewriter& b, Piece* piece);

}  // namespace telegrad
