// NumPy's basic and advanced indexing as values: x.At({Ellipsis(), Slice(1, -1, 2), 3, NewAxis(),
// rows}).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// begin:end:step with Python's defaults, clamping and negative positions; any step but 0. Positions
// may be symbolic: not negative then, and not clamped: what lies beyond the axis reads 0, and Set
// and stores leave it out. position:position + 4 has the size 4.
struct Slice {
  Slice() = default;
  Slice(std::optional<Dim> begin, std::optional<Dim> end, int64_t step = 1)
      : begin(begin), end(end), step(step) {}
  std::optional<Dim> begin, end;
  int64_t step = 1;
};
struct NewAxis {};
struct Ellipsis {};

class Index {
 public:
  using Value = std::variant<int64_t, Slice, NewAxis, Ellipsis, Tensor>;
  template <std::integral T>
  Index(T position) : value_(static_cast<int64_t>(position)) {}  // NOLINT
  Index(Slice span) : value_(span) {}                            // NOLINT
  Index(NewAxis axis) : value_(axis) {}                          // NOLINT
  Index(Ellipsis rest) : value_(rest) {}                         // NOLINT
  // Integers: advanced indexing, which broadcasts with the other tensors; out of range reads 0 and
  // writes nothing. Negative ones count from the end. A scalar i64 made of variables is a symbolic
  // position, as a plain number would be. A bool tensor is a mask of as many axes, for Set only.
  Index(Tensor positions) : value_(std::move(positions)) {}  // NOLINT
  const Value& value() const { return value_; }

 private:
  Value value_;
};

}  // namespace telegrad
