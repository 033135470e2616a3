// A reduction whose values go to computed places, as a SCATTER.
#pragma once

#include <vector>

#include "engine/base/status.h"
#include "engine/schedule/masked_reduction.h"
#include "engine/schedule/tensor_form.h"

namespace telegrad {

struct ScatterRequest {
  ScatterKind kind;
  UOp values;       // an expression over all axes but those that are sent
  uint32_t folded;  // axes, as bits: the index's; their row-major order is that of the writes
  uint32_t kept;    // the others, sent ones included
  const std::vector<MaskedReduction::ComputedIndex>& indices;
  UOp base;  // a tensor of tensors->DimsOf(kept), or a scalar
};

// A tensor of tensors->DimsOf(kept).
absl::StatusOr<UOp> MakeScatter(Graph* graph, IndexForm* form, TensorForm* tensors,
                                const ScatterRequest& request);

}  // namespace telegrad
