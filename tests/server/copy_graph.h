// The graph that fakes::CopyEngine pretends to compile: slot 0 becomes slot 1, `elements` floats.
#pragma once

#include "engine/ir/content_hash.h"
#include "engine/ir/graph.h"
#include "server/session/operation.h"

namespace telegrad {

inline FrozenGraph CopyGraph(int64_t elements) {
  Graph g;
  const int64_t dims[] = {elements};
  const UOp to = g.Param(0, DType::kFloat32, dims);
  const UOp from = g.Param(1, DType::kFloat32, dims);
  const UOp negated = g.Make(Op::kNeg, {from});
  const UOp store = g.Make(Op::kStore, {to, g.Make(Op::kNeg, {negated})});
  return Freeze(g.Make(Op::kSink, {store}));
}

}  // namespace telegrad
