// PEEL: the first iterations of a range apart from the others.
#pragma once

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// The kernel with two ranges in place of `range`, one of them of `amount` iterations. What both
// parts share keeps its ranges: see separate.h. Invalid where the graph has an error.
UOp Peel(Rewriter& b, UOp sink, UOp range, int64_t amount);

}  // namespace telegrad
