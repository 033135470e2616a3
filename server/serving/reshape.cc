// Compares the products of the sizes between dimensions of -1 in both shapes.
#include "server/serving/reshape.h"

#include <vector>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// Elements before the first dimension of -1, between it and the next, and so on.
absl::StatusOr<std::vector<int64_t>> SegmentsOf(ShapeView shape) {
  std::vector<int64_t> out = {1};
  for (const int64_t dim : shape) {
    if (dim < 0) {
      out.push_back(1);
    } else if (__builtin_mul_overflow(out.back(), dim, &out.back())) {
      return InvalidArgument("shape ", ToString(shape), " has too many elements");
    }
  }
  return out;
}

}  // namespace

absl::Status CheckReshape(ShapeView from, ShapeView to) {
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> before, SegmentsOf(from));
  TG_ASSIGN_OR_RETURN(const std::vector<int64_t> after, SegmentsOf(to));
  if (before == after) return absl::OkStatus();
  return InvalidArgument("dims ", ToString(from), " cannot be reshaped to ", ToString(to),
                         "; expected the same number of elements, and dimensions of -1 in the "
                         "same places among them");
}

Shape Reshaped(ShapeView shape, ShapeView from, ShapeView to) {
  Shape out(to.begin(), to.end());
  size_t at = 0;
  for (int64_t& dim : out) {
    if (dim >= 0) continue;
    while (from[at] >= 0) ++at;
    dim = shape[at++];
  }
  return out;
}

}  // namespace telegrad
