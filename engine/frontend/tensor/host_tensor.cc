#include "engine/frontend/tensor/host_tensor.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/types/limits.h"

namespace telegrad {

std::vector<double> HostTensor::AsDoubles() const {
  const size_t bits = static_cast<size_t>(Info(dtype).bits);
  std::vector<double> out(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t raw = 0;
    std::memcpy(&raw, bytes.data() + i * bits / 8, (bits + 7) / 8);
    if (IsPacked(dtype)) raw = raw >> (i * bits % 8) & ((1 << bits) - 1);
    out[i] = ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
  }
  return out;
}

absl::StatusOr<int64_t> CheckedByteSize(DType dtype, ShapeView shape) {
  if (dtype == DType::kVoid) return InvalidArgument("a tensor needs an element type");
  if (shape.size() > kMaxRank) {
    return InvalidArgument("rank ", shape.size(), " is over the limit of ", kMaxRank);
  }
  int64_t bounded = 1;  // over max(dim, 1), so that shapes with a zero are bounded too
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) return InvalidArgument("dimension ", dim, " in ", ToString(shape), " is negative");
    empty |= dim == 0;
    if (!CheckedMul(bounded, std::max<int64_t>(dim, 1), &bounded) || bounded > kMaxElements) {
      return InvalidArgument("shape ", ToString(shape), " has more than the limit of ",
                             kMaxElements, " elements");
    }
  }
  return empty ? 0 : BytesOf(dtype, bounded);
}

}  // namespace telegrad
