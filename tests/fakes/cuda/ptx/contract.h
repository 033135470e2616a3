// What the compiler of the device may do to f32 and f64 arithmetic that names no rounding (PTX ISA,
// "add", "mul": without one, optimizers may rearrange): a product and a
// sum become one fma. The fake does it wherever it is allowed, so that code whose results must not
// depend on it has to say .rn.
#pragma once

#include "tests/fakes/cuda/ptx/module.h"

namespace fakecuda {

// The statements with sums of products, within straight code, fused. "fma-" is a * b - c, "-fma" is
// c - a * b; no text has these names.
std::vector<Statement> Contracted(const Function& function);

}  // namespace fakecuda
