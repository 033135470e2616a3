// GGUF, versions 2 and 3, little-endian: typed metadata, then the tensors' names, shapes, types and
// places, then aligned data. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/io/tensor_file.h"

namespace telegrad {

// Dims are listed as everywhere here, the one that changes fastest last; the file has them the
// other way round. UNIMPLEMENTED for types that gguf_types.def does not have and for arrays of
// arrays.
absl::StatusOr<TensorListing> ListGguf(const ByteSource& source);

}  // namespace telegrad
