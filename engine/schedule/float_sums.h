// Sums of products of small integers in a kernel, added up in f32.
#pragma once

#include <optional>

#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/kernel_parts.h"

namespace telegrad {

// Whether it is a sum of products of i32, in a kernel.
bool SumsIntegers(UOp u);

// The kernel with its sums of products of integers in f32, where each of these is exact (see
// ExactTerms of byte_products.h); nullopt where none is.
absl::StatusOr<std::optional<KernelParts>> AddIntegersInFloat(const FrozenGraph& kernel);

}  // namespace telegrad
