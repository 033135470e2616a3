// Sums of products of dequantized values: (a - za) sa times (b - zb) sb, whose scales are the same
// for all terms, is sa sb times the sum of the products of integers, which is exact. It is added up
// by an instruction for bytes (byte_products.h) or, of few terms as those of a depthwise window, in
// f32, without a product by a scale for each term. As it was, such a sum is rounded in each term.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// The tensor graph with the scales of such sums behind them. For targets that multiply bytes, and
// where the order of float sums is free.
absl::StatusOr<FrozenGraph> ScaleSums(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
