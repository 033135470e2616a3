// The safetensors format: 8 bytes little-endian header length, a JSON header that gives each
// tensor's dtype, shape and byte range, then the data. https://github.com/huggingface/safetensors,
// "Format".
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/host_tensor.h"

namespace telegrad {

struct Safetensors {
  std::map<std::string, HostTensor> tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Strict: the byte ranges cover the data exactly, without gaps or overlap; names are unique UTF-8.
// UNIMPLEMENTED for element types that DType does not have, INVALID_ARGUMENT for everything
// malformed.
absl::StatusOr<Safetensors> ParseSafetensors(std::string_view file);
// INVALID_ARGUMENT if a tensor's bytes do not match its shape or a name is not UTF-8.
absl::StatusOr<std::string> FormatSafetensors(const Safetensors& contents);

}  // namespace telegrad
