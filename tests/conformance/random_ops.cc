// Adds ops to a random graph: views, reductions, operations on rows, elementwise ones. An op
// whose result would be too large, or that does not accept its sources, is left out.
#include <algorithm>

#include "tests/conformance/random_graph_maker.h"

namespace telegrad::testing {

UOp GraphMaker::Move(UOp x) {
  const ShapeView from = x.shape();
  const auto rank = static_cast<int64_t>(from.size());
  std::vector<int64_t> arg;
  switch (Below(6)) {
    case 0: {  // split or join
      Shape to(from.begin(), from.end());
      if (rank > 0 && Chance(2)) {
        const int64_t axis = Below(rank);
        for (int64_t d : {2, 3, 5}) {
          if (to[axis] % d != 0 || to[axis] == 0) continue;
          to[axis] /= d;
          to.insert(to.begin() + axis, d);
          break;
        }
      } else {
        to = {NumElements(from)};
      }
      return g_.Make(Op::kReshape, {x}, to);
    }
    case 1: {
      Shape with_one(from.begin(), from.end());
      const int64_t at = Below(rank + 1);
      with_one.insert(with_one.begin() + at, 1);
      const UOp r = g_.Make(Op::kReshape, {x}, with_one);
      with_one[at] = 1 + Below(5);
      if (NumElements(with_one) > kMaxElements) return {};
      return g_.Make(Op::kExpand, {r}, with_one);
    }
    case 2:
      for (int64_t i = 0; i < rank; ++i) arg.push_back(i);
      std::shuffle(arg.begin(), arg.end(), rng_);
      return g_.Make(Op::kPermute, {x}, arg);
    case 3:
      for (int64_t i = 0; i < rank; ++i) {
        if (Chance(2)) arg.push_back(i);
      }
      return g_.Make(Op::kFlip, {x}, arg);
    case 4:
      for (int64_t d : from) {
        const int64_t offset = Below(3);
        arg.push_back(offset);
        arg.push_back(offset + d + Below(3));
      }
      return g_.Make(Op::kPad, {x}, arg);
    default:
      for (int64_t d : from) {
        const int64_t begin = Below(d + 1), length = d > begin ? 1 + Below(d - begin) : 0;
        arg.push_back(begin);
        arg.push_back(length);
      }
      return g_.Make(Op::kShrink, {x}, arg);
  }
}

UOp GraphMaker::Reduce() {
  const UOp x = PickNumber();
  if (!x.valid()) return {};
  std::vector<int64_t> arg{Below(3)};
  // Products of many elements overflow floats into inf and NaN at different points: keep them
  // short.
  if (arg[0] == 1 && IsFloat(x.dtype()) && NumElements(x.shape()) > 16) arg[0] = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(x.shape().size()); ++i) {
    if (Chance(2)) arg.push_back(i);
  }
  return Note(g_.Make(Op::kReduce, {x}, arg), {.exact = !IsFloat(x.dtype()) || arg[0] == 2});
}

UOp GraphMaker::Gather() {
  const UOp x = Pick(), index = PickExact();
  if (!index.valid() || x.shape().empty() || !IsInt(index.dtype())) return {};
  if (NumElements(x.shape()) * NumElements(index.shape()) > kMaxElements) return {};
  return Note(g_.Make(Op::kGather, {x, index}), {.exact = Of(x).exact});
}

UOp GraphMaker::Scatter() {
  const UOp x = PickExact();
  const UOp index = PickWhere([&](UOp u) { return Of(u).exact && IsInt(u.dtype()); });
  if (!x.valid() || !index.valid() || x.shape().empty()) return {};
  Shape dims(index.shape().begin(), index.shape().end());
  dims.insert(dims.end(), x.shape().begin() + 1, x.shape().end());
  if (NumElements(dims) > kMaxElements) return {};
  const UOp rows = NewSlot(x.dtype(), dims);
  const bool number = !IsStorage(x.dtype()) && !IsBool(x.dtype());
  return g_.Make(Op::kScatter, DType::kVoid, {x, index, rows}, {number ? Below(5) : 0});
}

UOp GraphMaker::Cat() {
  const UOp x = Pick();
  if (x.shape().empty()) return {};
  const int64_t axis = Below(static_cast<int64_t>(x.shape().size()));
  std::vector<UOp> src{x};
  for (int64_t i = 1 + Below(3); i > 0; --i) {
    Shape dims(x.shape().begin(), x.shape().end());
    dims[axis] = Below(4);
    src.push_back(Chance(2) && NumElements(dims) > 0 ? NewSlot(x.dtype(), dims) : x);
  }
  std::shuffle(src.begin(), src.end(), rng_);
  const int64_t arg[] = {axis};
  return Note(g_.Make(Op::kCat, DType::kVoid, src, arg), {.exact = Of(x).exact});
}

UOp GraphMaker::Select() {
  const UOp x = PickExact();
  if (!x.valid()) return {};
  UOp c = Like(x);
  if (IsStorage(x.dtype())) {
    c = g_.Make(Op::kCmpLt, {Cast(c, DType::kFloat32), Cast(x, DType::kFloat32)});
  } else {
    c = g_.Make(Op::kCmpLt, {c, x});
  }
  return g_.Make(Op::kWhere, {c, x, Like(x)});
}

UOp GraphMaker::Unary() {
  constexpr Op kOps[] = {Op::kNeg, Op::kSqrt, Op::kRecip, Op::kTrunc, Op::kFloor};
  const UOp x = PickNumber();
  return x.valid() ? g_.Make(OneOf(kOps), {x}) : x;
}

UOp GraphMaker::Binary() {
  constexpr Op kOps[] = {Op::kAdd,   Op::kAdd,   Op::kSub,      Op::kSub,      Op::kMul,
                         Op::kMul,   Op::kMax,   Op::kFloorDiv, Op::kFloorMod, Op::kCmpLt,
                         Op::kCmpEq, Op::kCmpNe, Op::kAnd,      Op::kOr,       Op::kXor,
                         Op::kShl,   Op::kShr,   Op::kFDiv,     Op::kCDiv,     Op::kCMod};
  const UOp x = PickNumber();
  if (!x.valid()) return x;
  const Op op = OneOf(kOps);
  if (!all_ && (op == Op::kCDiv || op == Op::kCMod)) return {};
  if (all_ && op == Op::kMul && Chance(2)) return g_.Make(Op::kMulAcc, {x, Like(x), Like(x)});
  return g_.Make(op, {x, Like(x)});
}

UOp GraphMaker::Inexact() {
  constexpr Op kOps[] = {Op::kExp2, Op::kLog2, Op::kSin, Op::kPow};
  const UOp x = PickNumber();
  if (!x.valid() || !IsFloat(x.dtype())) return {};
  const Op op = OneOf(kOps);
  const UOp out = op == Op::kPow ? g_.Make(op, {x, Like(x)}) : g_.Make(op, {x});
  return Note(out, {.exact = false});
}

UOp GraphMaker::Convert() {
  const UOp x = PickExact();
  return x.valid() ? Cast(x, AnyDType()) : x;
}

UOp GraphMaker::Bitcast() {
  // The bits of a NaN that an op makes are not defined.
  const UOp x = PickWhere([&](UOp u) { return Of(u).raw || (Of(u).exact && !IsFloat(u.dtype())); });
  return x.valid() ? g_.Make(Op::kBitcast, AnyDType(), {x}) : x;
}

}  // namespace telegrad::testing
