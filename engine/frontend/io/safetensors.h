// The safetensors format: 8 bytes little-endian header length, a JSON header that gives each
// tensor's dtype, shape and byte range, then the data. https://github.com/huggingface/safetensors,
// "Format".
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad {

// Whether a file that begins so may be one: a length that is allowed, then JSON.
bool LooksLikeSafetensors(std::string_view head);

// Strict: the byte ranges cover the data exactly, without gaps or overlap. "__metadata__" is the
// metadata.
absl::StatusOr<TensorListing> ListSafetensors(const ByteSource& source);

// INVALID_ARGUMENT if a tensor's bytes do not match its shape or a name is not UTF-8,
// UNIMPLEMENTED for element types that the format does not have.
absl::Status WriteSafetensors(const std::map<std::string, HostTensor>& tensors,
                              const std::map<std::string, std::string>& metadata, ByteSink* sink);

}  // namespace telegrad
