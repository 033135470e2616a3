// Shared by the parts of Infer: the node to be made.
#pragma once

#include "engine/base/status.h"
#include "engine/ir/infer.h"

namespace telegrad::internal {

struct InferContext {
  const OpInfo& op;
  const std::span<const UOp>& src;
  const std::span<const int64_t>& arg;

  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return InvalidArgument(op.name, ": ", args...);
  }
};

absl::Status CheckDims(const InferContext& c, ShapeView dims);
// Axis numbers within `rank`, each at most once.
absl::Status CheckAxes(const InferContext& c, std::span<const int64_t> axes, size_t rank);
// The element `arg` of the tuple that a GETTUPLE names; its source has been checked to be one.
UOp TupleElement(const InferContext& c);

absl::Status InferShape(const InferContext& c, Inferred* out);
absl::Status InferDevices(const InferContext& c, Inferred* out);

}  // namespace telegrad::internal
