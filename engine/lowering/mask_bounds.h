// Up to which position a mask shows the elements of rows.
#pragma once

#include <span>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// `value`, at `row` and `key`, is -inf where a comparison of positions hides the key. The number of
// keys of which some row shows one, at most: an i64 that depends on nothing but the ranges
// `shared`, and may be less than 1 or more than there are. Invalid: no mask says that.
UOp KeysShown(Rewriter& b, UOp value, UOp row, UOp key, std::span<const UOp> shared);

}  // namespace telegrad
