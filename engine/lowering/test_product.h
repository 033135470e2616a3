// A matrix product and a processor, for tests of lists of moves.
#pragma once

#include "engine/ir/graph.h"
#include "engine/types/target.h"

namespace telegrad {

// c[i, j] = sum over k of a[i, k] * b[k, j] in f32: ranges 0 to 2 are i, j and k.
inline FrozenGraph TestProduct(int64_t m, int64_t n, int64_t k) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(m)),
            j = g.Range(1, AxisType::kLoop, g.Index(n));
  const UOp r = g.Range(2, AxisType::kReduce, g.Index(k));
  const auto at = [&](UOp row, int64_t width, UOp column) {
    return g.Make(Op::kAdd, {g.Make(Op::kMul, {row, g.Index(width)}), column});
  };
  const auto load = [&](int64_t slot, int64_t elements, UOp index) {
    const UOp memory = g.Param(slot, DType::kFloat32, Shape{elements});
    return g.Make(Op::kLoad, {g.Make(Op::kIndex, {memory, index})});
  };
  const UOp product = g.Make(Op::kMul, {load(1, m * k, at(i, k, r)), load(2, k * n, at(r, n, j))});
  const UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {product, r}, {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{m * n}), at(i, n, j)});
  const UOp store = g.Make(Op::kStore, {to, sum});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i, j}, {})}));
}

// Vectors of 64 bytes, 32 registers, two threads.
inline Target TestProcessor() {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  return target;
}

}  // namespace telegrad
