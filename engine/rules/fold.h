// The value of an ALU op on constants, with the meaning that the doc column of ops.def gives it.
// Floats of at most 32 bits are computed in float; the narrow ones are then rounded. Words are
// those of CONST, see ir/scalar.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/ir/graph.h"

namespace telegrad {

// nullopt for an op that is not ALU. `dtype` is the result's type.
std::optional<int64_t> Fold(Op op, DType dtype, std::span<const DType> types,
                            std::span<const int64_t> words);

// The same for a node whose sources are all CONST.
std::optional<int64_t> Fold(UOp u);

}  // namespace telegrad
