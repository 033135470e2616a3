// The element types of the Open Inference Protocol: their names, and the DType of each.
#pragma once

#include <optional>
#include <string_view>

#include "engine/types/dtype.h"

namespace telegrad {

// Strings: four bytes of length, little-endian, and so many bytes for each. No tensor of a graph
// has them: see ModelConfig::by_value and classification.h.
inline constexpr std::string_view kBytesDatatype = "BYTES";

// None for BYTES and for a name that the protocol does not have.
std::optional<DType> FromDatatype(std::string_view name);
// Empty where the protocol has no such type.
std::string_view DatatypeOf(DType dtype);
// Whether the protocol has a type of that name, BYTES included.
bool IsDatatype(std::string_view name);

}  // namespace telegrad
