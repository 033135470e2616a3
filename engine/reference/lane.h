// What each elementwise op does to one element: the doc column of ops.def, written out for the
// reference interpreter. It shares no code with constant folding (engine/ir/scalar.h, engine/rules)
// or the renderers, which tests compare with it.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"
#include "engine/types/dtype.h"

namespace telegrad::reference {

// One element: its bits in memory as a little-endian number, zero-extended. A bool is 0 or 1.
using Lane = uint64_t;
// Ops of fewer than three sources ignore the rest.
using LaneFn = Lane (*)(Lane, Lane, Lane);

// The function of an elementwise op whose sources have type `in` (for WHERE: sources 1 and 2) and
// whose result has type `out`. Null where the op is not elementwise or not defined on the type.
LaneFn FindLaneFn(Op op, DType in, DType out);

// The type in which REDUCE accumulates: narrow floats accumulate in f32 and are rounded once, at
// the end.
DType FoldType(DType dtype);
// The reduction of no elements of `dtype`: 0, 1, or the least value; a lane of FoldType(dtype).
Lane FoldStart(ReduceKind kind, DType dtype);
// The function that combines two lanes of FoldType(dtype).
LaneFn FoldFn(ReduceKind kind, DType dtype);

// The element that SCATTER stores when the update y meets the element x: each update is one op,
// which rounds.
LaneFn ScatterFn(ScatterKind kind, DType dtype);

// The element that a CONST's word stands for.
Lane LaneOfConst(DType dtype, int64_t word);
// An element of an integer type as an index; what no int64 can hold becomes INT64_MAX.
int64_t LaneAsIndex(DType dtype, Lane lane);
Lane LaneOfIndex(DType dtype, int64_t index);  // wraps

// Bytes that an element takes where ReadLane and WriteLane look: a packed one has a whole byte.
inline int64_t LaneBytes(DType dtype) { return IsPacked(dtype) ? 1 : ByteSize(dtype); }
// `at` needs no alignment. A stored bool is true if its byte is not 0.
Lane ReadLane(DType dtype, const uint8_t* at);
void WriteLane(DType dtype, Lane lane, uint8_t* at);

// Between memory as dtypes.def has it, where packed types have no gaps, and LaneBytes an element.
// Both have room for n elements; Unpack also makes the bytes of bools 0 or 1.
void Unpack(DType dtype, const uint8_t* memory, int64_t n, uint8_t* lanes);
void Pack(DType dtype, const uint8_t* lanes, int64_t n, uint8_t* memory);

}  // namespace telegrad::reference
