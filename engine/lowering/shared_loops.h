// The range that is sliced over threads and segments, made of as many loops as that takes.
#pragma once

#include "engine/lowering/kernel_shape.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// Makes one THREAD range of several. Then joins the loop directly inside of it to it while an
// iteration is predicted to take longer than the target's units, if the loop's iterations are
// independent and little is computed again in each.
UOp ShareLoops(Rewriter& b, UOp sink, const Target& target);

// Predicted cycles of all iterations of a work, by its operations and accesses alone; those of
// lanes that are a vector are one.
double CyclesOf(const KernelShape& shape, const Work& work, const Target& target);

}  // namespace telegrad
