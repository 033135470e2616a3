// The smallest graph that a kernel is made of: slot 0 becomes slot 1 + slot 1, `elements` floats.
#pragma once

#include "engine/ir/graph.h"

namespace telegrad {

inline FrozenGraph DoubleGraph(int64_t elements) {
  Graph g;
  const int64_t dims[] = {elements};
  const UOp x = g.Param(1, DType::kFloat32, dims);
  const UOp store =
      g.Make(Op::kStore, {g.Param(0, DType::kFloat32, dims), g.Make(Op::kAdd, {x, x})});
  return Freeze(g.Make(Op::kSink, {store}));
}

}  // namespace telegrad
