// NumPy's .npy files, format versions 1.0 and 2.0 (numpy.lib.format), little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad {

// The name of the tensor of a file that holds one and no name for it.
inline constexpr char kOnlyTensor[] = "data";

// The header of every file that is read lies within as many bytes.
inline constexpr int64_t kNpyHead = 12 + (64 << 10);

// `head`: the first kNpyHead bytes of an npy file of `size`, or all of it. Every byte of the file
// must belong to the tensor; offset counts from the file's begin. Fortran order becomes strides.
// UNIMPLEMENTED for big-endian and types that DType does not have.
absl::StatusOr<TensorEntry> ParseNpyHeader(std::string_view head, int64_t size);
absl::StatusOr<TensorListing> ListNpy(const ByteSource& source);

// UNIMPLEMENTED for types that NumPy does not have.
absl::StatusOr<std::string> FormatNpyHeader(DType dtype, const Shape& shape);
absl::Status WriteNpy(const HostTensor& tensor, ByteSink* sink);

}  // namespace telegrad
