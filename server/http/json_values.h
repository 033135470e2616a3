// The values of tensors as JSON has them: numbers, truth values or strings in a row, flat or
// nested.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/serving/infer.h"

namespace telegrad {

// Charges so many more bytes to whoever asked for them; an error where there is no room.
using PayBytes = std::function<absl::Status(int64_t bytes)>;

// Reads all values of `text`, which are those of `input`, a tensor of that shape and datatype, and
// appends them as the protocol has them in binary. What they take is paid before it is taken: a
// text is short where its values are not. INVALID_ARGUMENT says where the text is wrong.
absl::Status ReadJsonValues(std::string_view text, const InferInput& input, const PayBytes& pay,
                            std::string* out);

// Appends the values of `output` without brackets. INVALID_ARGUMENT for those that JSON cannot
// express.
absl::Status WriteJsonValues(const InferOutput& output, const PayBytes& pay, std::string* json);

}  // namespace telegrad
