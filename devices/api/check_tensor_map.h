// The limits of tensor maps, which are the same on all devices that take them.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/types/tensor_map.h"

namespace telegrad {

// OK for a map that devices take. INVALID_ARGUMENT names the dimension and what it has to be.
absl::Status CheckTensorMap(const TensorMap& map);

// From the first byte of the tensor's first element to the last of its last one. `map` is OK.
// INVALID_ARGUMENT for more than 2^63 - 1.
absl::StatusOr<int64_t> TensorMapBytes(const TensorMap& map);

// Of a device without tensor maps: UNIMPLEMENTED for a program that takes one, with the device's
// name and what it `lacks`.
absl::Status RefuseTensorMaps(const ProgramImage& image, std::string_view device,
                              std::string_view lacks);

}  // namespace telegrad
