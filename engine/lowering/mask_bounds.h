// Up to which position, or from which one on, a mask shows the elements of rows.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "engine/lowering/position_form.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

bool IsMinusInf(UOp u);  // the constant

// A comparison that is linear in the positions. It hides those where it is `hides`, and shows those
// where along * key + across * row + rest is at least 0.
struct PositionMask {
  bool hides = false;
  int64_t along = 0, across = 0;
  PositionForm rest;

  // nullopt where it is no such comparison. An invalid `row`: there is one row.
  static std::optional<PositionMask> Of(UOp compare, bool hides, UOp key, UOp row);
  // Whether they show the same, by whatever comparison.
  bool operator==(const PositionMask& other) const {
    return along == other.along && across == other.across && rest == other.rest;
  }
};

// The keys before `end`, or those from `first` on: i64 values that may be beyond the row. The other
// one is invalid.
struct MaskBound {
  UOp first, end;
};

// The keys that the mask shows for one of so many rows at least. nullopt where the key does
// not count, or the rest depends on anything but what `is_shared` admits.
std::optional<MaskBound> BoundOf(Rewriter& b, const PositionMask& mask, int64_t rows,
                                 absl::FunctionRef<bool(UOp)> is_shared);

}  // namespace telegrad
