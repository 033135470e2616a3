// What a kernel is predicted to take on a target with workgroups: a roofline of arithmetic and
// memory for each workgroup, by the target's row of costs (engine/types/machine_costs.h).
#pragma once

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/moves/move.h"
#include "engine/types/target.h"

namespace telegrad {

// Of all workgroups with a list of moves, in the unit of CostOfProduct (engine/ir/product_tile.h):
// multiplications of f32 by one thread, of which all processors do so many together. A product by
// way of local memory takes what CostOfProduct says; infinite where its tiles do not fit there.
// Moves of ranges that the kernel does not have count for nothing.
double CostOfGroups(const KernelShape& shape, const Target& target, const MoveList& moves);

}  // namespace telegrad
