#include "engine/frontend/tensor/host_bytes.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {

absl::Status CheckHostBytes(DType dtype, ShapeView shape, std::string_view bytes) {
  TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(dtype, shape));
  if (bytes.size() != static_cast<size_t>(size)) {
    return InvalidArgument(Name(dtype), " ", ToString(shape), " needs ", size, " bytes, got ",
                           bytes.size());
  }
  if (IsBool(dtype)) {
    const auto odd = std::ranges::find_if(bytes, [](char c) { return c != 0 && c != 1; });
    if (odd != bytes.end()) {
      return InvalidArgument("bool element ", odd - bytes.begin(), " has the byte ",
                             static_cast<int>(static_cast<uint8_t>(*odd)), ", expected 0 or 1");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HostTensor> HostTensorFromBytes(DType dtype, Shape shape, std::string_view bytes) {
  TG_RETURN_IF_ERROR(CheckHostBytes(dtype, shape, bytes));
  return HostTensor{dtype, std::move(shape), std::string(bytes)};
}

absl::Status CheckHostTensor(const HostTensor& tensor) {
  return CheckHostBytes(tensor.dtype, tensor.shape, tensor.bytes);
}

}  // namespace telegrad
