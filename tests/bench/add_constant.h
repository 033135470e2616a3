// The smallest graph of the benchmarks: a constant is added to each element of a vector.
#pragma once

#include <cstdint>

#include "engine/ir/graph.h"

namespace telegrad::bench {

// Slot 1 = slot 0 + `addend`, float32.
inline UOp AddConstant(Graph* graph, int64_t elements, double addend) {
  const int64_t dims[] = {elements};
  const UOp sum = graph->Make(Op::kAdd, {graph->Param(0, DType::kFloat32, dims),
                                         graph->ConstFloat(DType::kFloat32, addend)});
  const UOp store = graph->Make(Op::kStore, {graph->Param(1, DType::kFloat32, dims), sum});
  return graph->Make(Op::kSink, {store});
}

}  // namespace telegrad::bench
