// safetensors files (github.com/huggingface/safetensors, README "Format"): 8 bytes of little-endian
// header length, a JSON header, then the tensors' bytes without holes or overlaps.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/host_tensor.h"

namespace telegrad {

struct Safetensors {
  std::map<std::string, HostTensor> tensors;
  std::map<std::string, std::string> metadata;

  friend bool operator==(const Safetensors&, const Safetensors&) = default;
};

// INVALID_ARGUMENT names the tensor and what is wrong with the file; UNIMPLEMENTED an element type
// that this server does not have. At most the length of the file is allocated for tensors.
absl::StatusOr<Safetensors> ReadSafetensors(std::string_view file);

// Tensors with wider elements come first, so that each is aligned to its element; equal content
// gives equal bytes. INVALID_ARGUMENT if a name is not UTF-8 or is "__metadata__", or if a tensor's
// bytes do not fit its shape.
absl::StatusOr<std::string> WriteSafetensors(const Safetensors& content);

}  // namespace telegrad
