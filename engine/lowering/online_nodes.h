// The nodes that a softmax over blocks of keys is made of, as the threads of a workgroup compute
// it.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// What makes such a kernel derives from it. New ranges and memory get the next free numbers.
class OnlineNodes {
 protected:
  // `dtype`: of scores and weights. `next_range`: a number that no range has.
  OnlineNodes(Rewriter& b, DType dtype, int64_t next_range)
      : b_(b), g_(*b.graph()), dtype_(dtype), next_range_(next_range) {}

  UOp Fresh(AxisType type, int64_t size) { return g_.Range(next_range_++, type, g_.Index(size)); }
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t y) { return b_.Make(Op::kMul, {x, g_.Index(y)}); }
  UOp Store(UOp memory, UOp index, UOp value) {
    return g_.Make(Op::kStore, {g_.Make(Op::kIndex, {memory, index}), value});
  }
  UOp Load(UOp memory, UOp index) {
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {memory, index})});
  }
  UOp After(UOp memory, std::initializer_list<UOp> what) {
    std::vector<UOp> src{memory};
    src.insert(src.end(), what.begin(), what.end());
    return g_.Make(Op::kAfter, DType::kVoid, src);
  }
  UOp Nest(UOp store, std::initializer_list<std::span<const UOp>> loops) {
    std::vector<UOp> src{store};
    for (const std::span<const UOp> some : loops) src.insert(src.end(), some.begin(), some.end());
    return src.size() == 1 ? store : g_.Make(Op::kEnd, DType::kVoid, src);
  }
  UOp Reduce(ReduceKind kind, UOp body, std::initializer_list<std::span<const UOp>> over) {
    std::vector<UOp> src{body};
    for (const std::span<const UOp> some : over) src.insert(src.end(), some.begin(), some.end());
    if (src.size() == 1) return body;
    return g_.Make(Op::kReduce, DType::kVoid, src, std::vector{static_cast<int64_t>(kind)});
  }
  UOp Memory(AddressSpace space, DType dtype, int64_t elements) {
    return g_.Make(Op::kBuffer, dtype, {}, {static_cast<int64_t>(space), next_slot_++, elements});
  }
  UOp Private(int64_t elements) { return Memory(AddressSpace::kRegister, dtype_, elements); }

  Rewriter& b_;
  Graph& g_;
  const DType dtype_;
  int64_t next_range_, next_slot_ = 0;
};

}  // namespace telegrad
