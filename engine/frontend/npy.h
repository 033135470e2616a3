// NumPy's .npy files, format versions 1.0 and 2.0 (numpy.lib.format), little-endian and C order.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/host_tensor.h"

namespace telegrad {

// Every byte of `file` must belong to the tensor. UNIMPLEMENTED for Fortran order, big-endian and
// types that DType does not have; INVALID_ARGUMENT for everything malformed.
absl::StatusOr<HostTensor> ParseNpy(std::string_view file);
std::string FormatNpy(const HostTensor& tensor);

}  // namespace telegrad
