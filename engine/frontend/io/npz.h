// NumPy's .npz files: zip archives of .npy files, stored or deflated.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/io/zip.h"

namespace telegrad {

// A tensor's name is its member's without ".npy"; other members are refused.
absl::StatusOr<TensorListing> ListNpz(const ByteSource& source, const ZipDirectory& zip);

absl::Status WriteNpz(const std::map<std::string, HostTensor>& tensors, ByteSink* sink);

}  // namespace telegrad
