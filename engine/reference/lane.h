// What each elementwise op does to one element: the doc column of ops.def, written out for the
// judge. It shares nothing with constant folding (engine/ir/scalar.h, engine/rules) or the
// renderers, which are compared with it.
#pragma once

#include <cstdint>

#include "engine/ir/op.h"
#include "engine/types/dtype.h"

namespace telegrad::reference {

// One element: its bytes in memory as a little-endian number, zero-extended. A bool is 0 or 1.
using Lane = uint64_t;
// Ops of fewer than three sources ignore the rest.
using LaneFn = Lane (*)(Lane, Lane, Lane);

// The function of an elementwise op whose sources have type `in` (for WHERE: sources 1 and 2) and
// whose result has type `out`. Null where the op is not elementwise or not defined on the type.
LaneFn FindLaneFn(Op op, DType in, DType out);

// What a fold of no elements gives: 0, 1, or the least value.
Lane FoldStart(ReduceKind kind, DType dtype);
// The function that folds two elements.
LaneFn FoldFn(ReduceKind kind, DType dtype);

// The element that a CONST's word stands for.
Lane LaneOfConst(DType dtype, int64_t word);
// An element of an integer type as an index; what no int64 can hold becomes INT64_MAX.
int64_t LaneAsIndex(DType dtype, Lane lane);
Lane LaneOfIndex(DType dtype, int64_t index);  // wraps

// `at` needs no alignment. A stored bool is true if its byte is not 0.
Lane ReadLane(DType dtype, const uint8_t* at);
void WriteLane(DType dtype, Lane lane, uint8_t* at);

}  // namespace telegrad::reference
