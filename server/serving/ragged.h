// Ragged batches: requests whose sizes of some dimensions differ share a batch. Each is padded with
// zeros to the largest of them, and what comes back of it is cut to its own size. For models to
// which such zeros make no difference, because a mask is among their inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct ModelConfig;

// A size of the model that differs between the requests of a batch, by the model's name for it.
struct RaggedSize {
  std::string name;
  // Tensors of the configuration and their axes, of which 0 is the batch's.
  std::vector<std::pair<size_t, size_t>> inputs = {}, outputs = {};
};

// Those of the inputs with allow_ragged_batch, none where there is no such input. INVALID_ARGUMENT
// where it is not known which dimensions of the outputs they are.
absl::StatusOr<std::vector<RaggedSize>> FindRagged(const ModelConfig& config);

// The size that a model is compiled for where `size` is needed: few of them, at most half more.
int64_t PaddedSize(int64_t size);

// Calls `run` with the offset and length in bytes of each stretch of a tensor of shape `outer` that
// lies in its corner of shape `box`, in row-major order.
void ForEachRun(ShapeView box, ShapeView outer, int64_t element_bytes,
                const std::function<void(int64_t offset, int64_t bytes)>& run);

}  // namespace telegrad
