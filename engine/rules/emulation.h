// Rules that express element types that a target does not compute in by types that it does.
#pragma once

#include <vector>

#include "engine/rewrite/rule.h"
#include "engine/types/target.h"

namespace telegrad {

// The tables that leave a kernel only operations in the element types that `target` computes in,
// and no more than loads, stores, selections and bitcasts of others. They stand in front of
// kDecompositions and kAlgebra in one rewriter.
//
// A narrow float op becomes casts to f32, the op on f32, and a cast back, which rounds once; a
// REDUCE accumulates in f32 and rounds at its end. A cast between a float under 32 bits and f32
// becomes arithmetic on the bits, unless the target converts the type itself. Every other cast of
// such a type goes by way of f32, rounded to odd where f32 does not hold the value, so that the
// second rounding is the only one that counts.
std::vector<const RuleTable*> EmulationTables(const Target& target);

}  // namespace telegrad
