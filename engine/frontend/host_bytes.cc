#include "engine/frontend/host_bytes.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {
namespace {

absl::Status CheckContent(DType dtype, ShapeView shape, std::string_view bytes) {
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

}  // namespace

absl::StatusOr<HostTensor> HostTensorFromBytes(DType dtype, Shape shape, std::string_view bytes) {
  TG_RETURN_IF_ERROR(CheckContent(dtype, shape, bytes));
  return HostTensor{dtype, std::move(shape), std::string(bytes)};
}

absl::Status CheckHostTensor(const HostTensor& tensor) {
  return CheckContent(tensor.dtype, tensor.shape, tensor.bytes);
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const int more = lead < 0x80       ? 0
                     : lead >> 5 == 6  ? 1
                     : lead >> 4 == 14 ? 2
                     : lead >> 3 == 30 ? 3
                                       : -1;
    if (more < 0 || text.size() - i <= static_cast<size_t>(more)) return false;
    uint32_t code = more == 0 ? lead : lead & (0x3f >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLeast[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += more + 1;
  }
  return true;
}

}  // namespace telegrad
