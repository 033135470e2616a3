// Up to which position, or from which one on, a mask shows the elements of rows.
#pragma once

#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

bool IsMinusInf(UOp u);  // the constant

// A comparison of positions shows the keys before `end`, or those from `first` on: i64 values that
// may be beyond the row. The other one is invalid.
struct MaskBound {
  UOp first, end;
};

// `value`, at `row` and `key`, is -inf where comparisons of positions hide the key. Of each of them
// that is linear in the positions, where the keys that it shows for some row begin or end, if that
// depends on nothing but what `is_shared` admits. An invalid `row`: there is one row.
std::vector<MaskBound> MaskBoundsOf(Rewriter& b, UOp value, UOp row, UOp key,
                                    absl::FunctionRef<bool(UOp)> is_shared);

// The number of keys of which some row shows one, at most: an end of those above that depends on
// nothing but the ranges `shared`. Invalid: no mask says that.
UOp KeysShown(Rewriter& b, UOp value, UOp row, UOp key, std::span<const UOp> shared);

}  // namespace telegrad
