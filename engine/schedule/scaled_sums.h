// Sums of products of dequantized values: (a - za) sa times (b - zb) sb, whose scales are the same
// for all terms, is sa sb times the sum of the products of integers, which is exact and is added up
// by an instruction for bytes (byte_products.h). Such a sum in f32 is rounded in each term instead.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// The tensor graph with the scales of such sums behind them. For targets that multiply bytes, and
// where the order of float sums is free.
absl::StatusOr<FrozenGraph> ScaleSums(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
