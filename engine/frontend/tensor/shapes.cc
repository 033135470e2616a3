#include "engine/frontend/tensor/shapes.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<int64_t> ResolveAxis(std::string_view op, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument(op, ": axis ", axis, " is outside of rank ", rank);
  }
  return axis < 0 ? axis + rank : axis;
}

absl::StatusOr<Axes> ResolveAxes(std::string_view op, const Axes& axes, int64_t rank) {
  Axes out;
  for (int64_t axis : axes) {
    TG_ASSIGN_OR_RETURN(const int64_t resolved, ResolveAxis(op, axis, rank));
    out.push_back(resolved);
  }
  std::ranges::sort(out);
  if (const auto twice = std::ranges::adjacent_find(out); twice != out.end()) {
    return InvalidArgument(op, ": axis ", *twice, " appears twice");
  }
  return out;
}

absl::StatusOr<Dims> Broadcast(std::string_view op, const Dims& a, const Dims& b) {
  const size_t rank = std::max(a.size(), b.size());
  const Dim one = 1;
  Dims out;
  for (size_t i = 0; i < rank; ++i) {
    const Dim& x = i + a.size() < rank ? one : a[i + a.size() - rank];
    const Dim& y = i + b.size() < rank ? one : b[i + b.size() - rank];
    if (x != y && x != one && y != one) {
      const bool symbolic = !x.is_static() || !y.is_static();
      return InvalidArgument(
          op, ": shapes ", ToString(a), " and ", ToString(b), " do not broadcast: axis ", i,
          " has ", x.size(), " and ", y.size(),
          symbolic ? ", of which one is symbolic and not known to be equal" : "");
    }
    out.push_back(x == one ? y : x);
  }
  return out;
}

absl::StatusOr<Shape> BroadcastShapes(std::string_view op, ShapeView a, ShapeView b) {
  TG_ASSIGN_OR_RETURN(const Dims out, Broadcast(op, a, b));
  return out.sizes();
}

}  // namespace telegrad
