// Late rules, which express operations that a target lacks by operations that it has.
#pragma once

#include "engine/rewrite/rule.h"
#include "engine/types/target.h"

namespace telegrad {

// EXP2, LOG2, SIN and POW of f32 and f64 as polynomials over bit operations (program level), within
// 2 ulp of the true value everywhere, POW within 4: overflow gives inf, results below the normal
// range are rounded into the subnormal ones, subnormal operands count; exp2(NaN) = log2(NaN) =
// log2(x < 0) = NaN, log2(+-0) = -inf, log2(inf) = inf, sin(+-inf) = NaN, sin(+-0) = +-0; POW's
// special cases are those of C (ISO 9899, F.10.4.4). THREEFRY as 32-bit arithmetic.
extern const RuleTable kDecompositions;

// Those of them that the target needs: EXP2 of f32 stays where it is an instruction.
const RuleTable& DecompositionsFor(const Target& target);

// x * y + z as one MULACC on floats, for targets with fused multiply-add. It changes the rounding.
extern const RuleTable kMulAcc;

// Signed division and modulo by a power of two as shift and mask. Not to be combined with other
// tables that divide, because it is applied last to indices.
extern const RuleTable kStrength;

}  // namespace telegrad
