// Tensors of datatype BYTES as the protocol has them: each element is its length, 32 bits
// little-endian, and then so many bytes, whatever they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

void AppendElement(std::string_view element, std::string* out);

// The elements of a tensor whose bytes come in pieces. INVALID_ARGUMENT unless they are exactly
// `count` elements.
absl::StatusOr<std::vector<std::string>> ReadElements(
    const std::vector<std::span<const uint8_t>>& pieces, int64_t count);

// The same without keeping them.
absl::Status CheckElements(const std::vector<std::span<const uint8_t>>& pieces, int64_t count);

// Takes the first element off `bytes`; false where there is none, or none that is complete.
bool TakeElement(std::string_view* bytes, std::string_view* element);

}  // namespace telegrad
