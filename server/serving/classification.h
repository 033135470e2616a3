// The classification extension: instead of an output's values, the classes of the highest ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/serving/infer.h"

namespace telegrad {

// Puts strings "VALUE:INDEX" or "VALUE:INDEX:LABEL" in the place of the values of `out`, which are
// of type `dtype`: `classes` of them, at most all, for each row of a batch, or for the whole.
// INVALID_ARGUMENT for a type that has no order. `account` pays for as long as the text is kept.
absl::Status Classify(DType dtype, int64_t classes, bool batched,
                      const std::vector<std::string>& labels,
                      const std::shared_ptr<Account>& account, InferOutput* out);

}  // namespace telegrad
