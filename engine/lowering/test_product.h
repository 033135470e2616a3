// A matrix product, a processor and what is counted of a program, for tests of lowering.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/ranges.h"
#include "engine/types/target.h"

namespace telegrad {

enum class ProductForm {
  kPlain,
  kMasked,             // only elements of `b` with j + k below n + k - 1 count
  kInPlace,            // added to what `c` has
  kInPlaceTransposed,  // the same, with b[j, k] in place of b[k, j]
};

// c[i, j] = sum over k of a[i, k] * b[k, j], computed in f32: ranges 0 to 2 are i, j and k.
inline FrozenGraph TestProduct(int64_t m, int64_t n, int64_t k, DType dtype = DType::kFloat32,
                               ProductForm form = ProductForm::kPlain) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(m)),
            j = g.Range(1, AxisType::kLoop, g.Index(n));
  const UOp r = g.Range(2, AxisType::kReduce, g.Index(k));
  const auto at = [&](UOp row, int64_t width, UOp column) {
    return g.Make(Op::kAdd, {g.Make(Op::kMul, {row, g.Index(width)}), column});
  };
  const bool transposed = form == ProductForm::kInPlaceTransposed;
  const auto load = [&](int64_t slot, int64_t elements, UOp index) {
    const UOp memory = g.Param(slot, dtype, Shape{elements});
    UOp from = g.Make(Op::kIndex, {memory, index});
    if (slot == 2 && form == ProductForm::kMasked) {
      const UOp inside = g.Make(Op::kCmpLt, {g.Make(Op::kAdd, {j, r}), g.Index(n + k - 2)});
      from = g.Make(Op::kIndex, {memory, index, inside});
    }
    const UOp loaded = g.Make(Op::kLoad, {from});
    return dtype == DType::kFloat32 ? loaded : g.Make(Op::kCast, DType::kFloat32, {loaded}, {});
  };
  const UOp product = g.Make(Op::kMul, {load(1, m * k, at(i, k, r)),
                                        load(2, k * n, transposed ? at(j, k, r) : at(r, n, j))});
  UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {product, r}, {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{m * n}), at(i, n, j)});
  if (form == ProductForm::kInPlace || transposed) {
    sum = g.Make(Op::kAdd, {g.Make(Op::kLoad, {to}), sum});
  }
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

// The same, which converts f16 by itself.
inline Target TestProcessorOfHalves() {
  Target target = TestProcessor();
  target.converts = {DType::kFloat16};
  return target;
}

inline std::vector<UOp> NodesOf(const Program& program, Op op) {
  std::vector<UOp> out;
  for (uint32_t id : program.order) {
    if (program.graph->op(id) == op) out.push_back(program.graph->at(id));
  }
  return out;
}

// Whether a LOAD or STORE is of the argument in that slot.
inline bool IsOfArgument(UOp access, int64_t slot) {
  const UOp memory = Memory(access.src(0));
  return memory.is(Op::kParam) && memory.slot() == slot;
}

// The registers that the accumulators of the innermost reduction take.
inline int64_t AccumulatorBytes(const Program& program) {
  int64_t bytes = 0;
  for (UOp buffer : NodesOf(program, Op::kBuffer)) {
    if (buffer.elements() <= 64) bytes += BytesOf(buffer.dtype(), buffer.elements());
  }
  return bytes;
}

}  // namespace telegrad
