// Rewrites of values whose bits matter: packed types, and bitcasts that change the width.
//
// A value of a packed type is carried as one u8 for each element, its code: the element's bits in
// the low bits, zeros above.
#pragma once

#include "engine/ir/graph.h"

namespace telegrad {

// The type that carries values of `dtype`.
inline DType Carrier(DType dtype) { return IsPacked(dtype) ? DType::kUInt8 : dtype; }
// The CONST `word` of `dtype` as it is carried.
UOp CarriedConst(Graph* g, DType dtype, int64_t word);

// The codes of the `dims` elements in `bytes`, a flat u8 value.
UOp UnpackCodes(Graph* g, DType packed, UOp bytes, ShapeView dims);
// The flat bytes that hold `codes`; bits of the last byte that no element has are 0.
UOp PackCodes(Graph* g, DType packed, UOp codes);

// CAST and BITCAST of `x`, a carried value of `from`, to the carrier of `to`.
UOp CarriedCast(Graph* g, UOp x, DType from, DType to);
UOp CarriedBitcast(Graph* g, UOp x, DType from, DType to);

}  // namespace telegrad
