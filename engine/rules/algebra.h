// Identities of the ALU ops that hold bit for bit, on every element type a row admits.
#pragma once

#include "engine/rewrite/rule.h"

namespace telegrad {

// Constant folding, neutral and absorbing elements, casts, selects, booleans. Constants move to the
// right and together. Measure: the number of nodes, then of subtractions, then of constants out of
// place.
extern const RuleTable kAlgebra;

}  // namespace telegrad
