// .npy files (numpy.lib.format): a magic, a version, a Python dict literal, the elements in C
// order.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/host_tensor.h"

namespace telegrad {

// Versions 1.0, 2.0 and 3.0. UNIMPLEMENTED: Fortran order, big-endian, object, structured or other
// element types that this server does not have. INVALID_ARGUMENT: anything else that is wrong.
absl::StatusOr<HostTensor> ReadNpy(std::string_view file);

// The bytes that numpy.save writes (NumPy 1.23 and later), in version `major`.0, 1 to 3.
absl::StatusOr<std::string> WriteNpy(const HostTensor& tensor, int major = 1);

}  // namespace telegrad
