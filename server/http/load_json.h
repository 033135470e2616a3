// The bodies of requests that load and unload models.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/serving/given_model.h"

namespace telegrad {

struct UnloadJson {
  bool parts = false;  // unload_dependents
};

// INVALID_ARGUMENT for what is no JSON, UNIMPLEMENTED for parameters that are not known.
absl::StatusOr<UnloadJson> ParseUnloadJson(std::string_view body);

// "parameters": {"config": "JSON", "file:VERSION/NAME": "BASE64"}, of which none has to be there.
// The result and what is read meanwhile have at most twice as many bytes as the body.
absl::StatusOr<LoadOverrides> ParseLoadJson(std::string_view body);

}  // namespace telegrad
