// The part of a model's configuration that is about sequences, between the protocol's message and
// server/serving.
#pragma once

#include "absl/status/statusor.h"
#include "inference/model_config.pb.h"
#include "server/serving/model_config.h"

namespace telegrad {

// INVALID_ARGUMENT for what does not fit together, UNIMPLEMENTED for what is known and not done.
absl::StatusOr<SequenceBatching> ReadSequences(const inference::ModelSequenceBatching& in);
void WriteSequences(const SequenceBatching& sequences, bool batches,
                    inference::ModelSequenceBatching* out);

}  // namespace telegrad
