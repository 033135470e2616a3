// A tensor graph put on several devices: for tests that compare it with itself on one.
#pragma once

#include <cstdint>
#include <random>

#include "engine/ir/graph.h"

namespace telegrad::testing {

// The same graph in `to` with its params each on a device below `devices` chosen by `rng`; where
// sources of a node would be on several devices, copies bring them to one of them. An invalid UOp
// where that breaks a rule of the IR.
UOp Spread(UOp sink, int64_t devices, std::mt19937_64& rng, Graph* to);

}  // namespace telegrad::testing
