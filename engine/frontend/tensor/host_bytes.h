// Checks between bytes of a file and a HostTensor, shared by the readers and writers of state
// files.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad {

// A copy of `bytes` as a tensor. INVALID_ARGUMENT if the shape breaks a limit, if the length is not
// exactly what dtype and shape need (checked before anything is allocated), or if a bool is neither
// 0 nor 1.
absl::StatusOr<HostTensor> HostTensorFromBytes(DType dtype, Shape shape, std::string_view bytes);

// The same without the copy.
absl::Status CheckHostBytes(DType dtype, ShapeView shape, std::string_view bytes);

// OK if the tensor keeps the contract of HostTensor::bytes.
absl::Status CheckHostTensor(const HostTensor& tensor);

}  // namespace telegrad
