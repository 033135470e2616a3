// A plan in a safetensors file: the graph and the roles of its slots in the file's metadata, and
// the content of its state as tensors of the slots' names. `telegrad.torch.export` writes them.
//
//   telegrad.plan   the version of this form, "1"
//   telegrad.graph  a serialized graph.proto, in base64
//   telegrad.slots  a JSON array of {"name": ..., "role": "input", "state" or "output"}, by slot
//   telegrad.sizes  where sizes depend on the inputs (plan_sizes.h): a JSON array of the names of
//                   the graph's variables, by their number
#pragma once

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

bool HoldsPlan(const TensorFile& file);

// INVALID_ARGUMENT where the parts do not fit each other, and for what GraphFromBytes refuses;
// UNIMPLEMENTED for another version.
absl::StatusOr<Plan> ReadPlan(const TensorFile& file, Budget* budget);

}  // namespace telegrad
