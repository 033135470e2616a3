// A model's configuration between its file's text, the protocol's message and server/serving.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "inference/model_config.pb.h"
#include "server/serving/model_config.h"

namespace telegrad {

// Of a file config.pbtxt. INVALID_ARGUMENT with line and column; UNIMPLEMENTED for what is known
// and not done here. Fields that are not known are passed over and logged.
absl::StatusOr<ModelConfig> ParseConfigText(std::string_view text);

// Of the message in JSON, as a load may bring it along. INVALID_ARGUMENT says what of it is wrong;
// else as above.
absl::StatusOr<ModelConfig> ParseConfigJson(std::string_view json);

// `batch_said`: max_batch_size is written, if only as 0.
absl::StatusOr<ModelConfig> FromProto(const inference::ModelConfig& in, bool batch_said);

void ToProto(const ModelConfig& config, inference::ModelConfig* out);

}  // namespace telegrad
