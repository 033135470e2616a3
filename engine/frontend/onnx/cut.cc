// Tensors with the shape that a run gives them, and with that of their bounds.
#include <algorithm>
#include <cstring>

#include "engine/base/status.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

namespace {

// Calls f(place in the whole, place in the part, bytes) for each run of bytes that both have.
// `part` is within `whole`.
template <typename F>
void ForEachRow(ShapeView whole, ShapeView part, int64_t element, F f) {
  if (NumElements(part) == 0) return;
  size_t last = part.size();  // the axis of a row: what lies behind it is whole
  while (last > 0 && part[last - 1] == whole[last - 1]) --last;
  last = last == 0 ? 0 : last - 1;
  int64_t behind = element;
  for (size_t i = last + 1; i < part.size(); ++i) behind *= part[i];
  const int64_t rows = part.empty() ? 1 : NumElements(part.first(last));
  const int64_t row = part.empty() ? behind : part[last] * behind;
  const int64_t stride = part.empty() ? behind : whole[last] * behind;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t place = 0, rest = i, among = 1;
    for (size_t axis = last; axis-- > 0;) {
      place += rest % part[axis] * among;
      rest /= part[axis];
      among *= whole[axis];
    }
    f(static_cast<size_t>(place * stride), static_cast<size_t>(i * row), static_cast<size_t>(row));
  }
}

bool IsWithin(ShapeView part, ShapeView whole) {
  bool inside = part.size() == whole.size();
  for (size_t i = 0; inside && i < part.size(); ++i) {
    inside = part[i] >= 0 && part[i] <= whole[i];
  }
  return inside;
}

}  // namespace

absl::StatusOr<HostTensor> Cut(const HostTensor& whole, ShapeView shape) {
  if (!IsWithin(shape, whole.shape)) {
    return Internal("a result of shape ", ToString(whole.shape), " is to be cut to ",
                    ToString(shape));
  }
  HostTensor out{whole.dtype, ToShape(shape), {}};
  if (out.shape == whole.shape) return whole;
  if (IsPacked(whole.dtype)) {
    return Unimplemented("a result of ", Name(whole.dtype), " whose shape each run decides");
  }
  const int64_t element = ByteSize(whole.dtype);
  out.bytes.resize(static_cast<size_t>(NumElements(shape) * element));
  ForEachRow(whole.shape, shape, element, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(out.bytes.data() + to, whole.bytes.data() + from, bytes);
  });
  return out;
}

absl::StatusOr<HostTensor> Widen(const HostTensor& part, ShapeView shape) {
  if (!IsWithin(part.shape, shape)) {
    return InvalidArgument("a value of shape ", ToString(part.shape), ", expected at most ",
                           ToString(shape));
  }
  if (std::ranges::equal(part.shape, shape)) return part;
  if (IsPacked(part.dtype)) {
    return Unimplemented("a value of ", Name(part.dtype), " whose shape the run chooses");
  }
  HostTensor out{part.dtype, ToShape(shape), {}};
  TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(part.dtype, shape));
  out.bytes.assign(static_cast<size_t>(bytes), '\0');
  ForEachRow(shape, part.shape, ByteSize(part.dtype), [&](size_t to, size_t from, size_t n) {
    std::memcpy(out.bytes.data() + to, part.bytes.data() + from, n);
  });
  return out;
}

}  // namespace telegrad
