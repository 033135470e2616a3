// What the scheduler does so that a float sum is rounded alike in every schedule: with a batch of 1
// or of 16, stored or computed where it is used. The order of the additions is fixed afterwards, by
// lowering (engine/lowering/order_sums.h). Here it is decided which sums of products are computed
// by fused multiply-adds.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Of each node, in the order of PostOrder: the node of which it is a view, perhaps by way of
// others; itself, if it is none. Linear, however many share a long way.
NodeMap<uint32_t> BeneathViews(const Graph& graph, std::span<const uint32_t> order);

// Whether a REDUCE sums the products of two values that are both computed or read, by way of views;
// `beneath` has those of its graph.
bool SumsProducts(UOp reduce, const NodeMap<uint32_t>& beneath);

// From and to a legalized tensor graph. A sum of products is computed by fused multiply-adds, which
// do not round the products. Where a product has other users, it depends on costs whether the
// schedule stores it, rounded, or computes it again. There the product becomes MULACC(x, y, -0):
// the same value, which is always rounded before it is added.
absl::StatusOr<FrozenGraph> RoundSharedProducts(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
