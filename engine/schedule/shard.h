// UNSHARD moves towards the results: what can be computed of each shard where it lies is, and what
// has to travel is the result.
//
//   elementwise(UNSHARD(x), UNSHARD(y), scalar)  UNSHARD(elementwise(x, y, scalar))
//   elementwise(UNSHARD(x), whole)               UNSHARD(elementwise(x, each device's part of it))
//   a view that keeps the axis                   UNSHARD(the view of the shard)
//   REDUCE along the axis                        ALLREDUCE(REDUCE(x)), whole on each device
//   REDUCE along others                          UNSHARD(REDUCE(x))
//   GATHER(table, UNSHARD(index)), CAT           UNSHARD(the same of the shards)
//   SHRINK to within one shard                   that shard alone
//
// So a matmul whose operands are sharded along the contracted axis is a local matmul and an
// ALLREDUCE, and one along another axis needs no transfer. Shards are equal by construction: MSTACK
// refuses sources of different shapes, so who shards an axis that its devices do not divide pads
// it.
//
// The result of a REDUCE along the axis is reduced shard by shard: floats may round differently, as
// a reassociated sum does. Floats under 32 bits are summed in f32 across the shards too.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// `sink` is the root of a verified tensor graph; so is the result.
absl::StatusOr<FrozenGraph> ShardGraph(UOp sink, Budget* budget);

}  // namespace telegrad
