#include "engine/frontend/tensor/dim_math.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// value = base + offset; a number has no base.
struct Sum {
  UOp base;
  int64_t offset = 0;
};

Sum Peel(const Dim& dim) {
  if (dim.is_static()) return {{}, dim.size()};
  Sum sum{dim.value(), 0};
  while (sum.base.is(Op::kAdd) || sum.base.is(Op::kSub)) {
    const UOp x = sum.base.src(0), y = sum.base.src(1);
    if (!y.is_const()) break;
    const int64_t word = y.const_word();
    const bool fits = sum.base.is(Op::kAdd) ? CheckedAdd(sum.offset, word, &sum.offset)
                                            : CheckedSub(sum.offset, word, &sum.offset);
    if (!fits) return {dim.value(), 0};
    sum.base = x;
  }
  return sum;
}

Dim DimNode(Builder* builder, Op op, const Tensor& a, const Tensor& b) {
  return Dim(builder->Make(op, DType::kVoid, {a, b}));
}

Dim FromSum(Builder* builder, const Sum& sum) {
  if (!sum.base.valid()) return Dim(sum.offset);
  const Tensor base(builder, sum.base);
  if (sum.offset == 0) return Dim(base);
  return DimNode(builder, Op::kAdd, base, builder->Const(DType::kInt64, sum.offset));
}

// Numbers that overflow here are refused by every operation that gets them as a size.
int64_t Saturated(bool fits, int64_t value) { return fits ? value : -2; }

Dim Negated(Builder* builder, const Dim& dim) {
  return Dim(builder->Make(Op::kNeg, DType::kVoid, {AsTensor(builder, dim)}));
}

}  // namespace

Interval BoundsOf(const Dim& dim) {
  return dim.is_static() ? Interval{dim.size(), dim.size()} : dim.value().bounds();
}

Tensor AsTensor(Builder* builder, const Dim& dim) {
  return dim.is_static() ? builder->Const(DType::kInt64, dim.size()) : Tensor(builder, dim.value());
}

Dim AddDims(Builder* builder, const Dim& a, const Dim& b) {
  const Sum x = Peel(a), y = Peel(b);
  int64_t offset = 0;
  const bool fits = CheckedAdd(x.offset, y.offset, &offset);
  if (!fits || (!x.base.valid() && !y.base.valid())) return Dim(Saturated(fits, offset));
  if (!x.base.valid() || !y.base.valid()) {
    return FromSum(builder, {x.base.valid() ? x.base : y.base, offset});
  }
  const Dim both = DimNode(builder, Op::kAdd, Tensor(builder, x.base), Tensor(builder, y.base));
  return FromSum(builder, {both.value(), offset});
}

Dim SubDims(Builder* builder, const Dim& a, const Dim& b) {
  const Sum x = Peel(a), y = Peel(b);
  int64_t offset = 0;
  const bool fits = CheckedSub(x.offset, y.offset, &offset);
  if (!fits || x.base == y.base) return Dim(Saturated(fits, offset));
  if (!y.base.valid()) return FromSum(builder, {x.base, offset});
  const Dim difference =
      x.base.valid() ? DimNode(builder, Op::kSub, Tensor(builder, x.base), Tensor(builder, y.base))
                     : Negated(builder, Dim(Tensor(builder, y.base)));
  return FromSum(builder, {difference.value(), offset});
}

Dim MulDims(Builder* builder, const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) {
    int64_t product = 0;
    const bool fits = CheckedMul(a.size(), b.size(), &product);
    return Dim(Saturated(fits, product));
  }
  if (a == Dim(1) || b == Dim(0)) return b;
  if (b == Dim(1) || a == Dim(0)) return a;
  const auto [first, second] = a.is_static() ? std::pair(b, a) : std::pair(a, b);
  return DimNode(builder, Op::kMul, AsTensor(builder, first), AsTensor(builder, second));
}

Dim MaxDims(Builder* builder, const Dim& a, const Dim& b) {
  const Sum x = Peel(a), y = Peel(b);
  if (x.base == y.base) return x.offset < y.offset ? b : a;
  if (BoundsOf(a).lo >= BoundsOf(b).hi) return a;
  if (BoundsOf(b).lo >= BoundsOf(a).hi) return b;
  return DimNode(builder, Op::kMax, AsTensor(builder, a), AsTensor(builder, b));
}

Dim MinDims(Builder* builder, const Dim& a, const Dim& b) {
  const Sum x = Peel(a), y = Peel(b);
  if (x.base == y.base) return x.offset < y.offset ? a : b;
  if (BoundsOf(a).hi <= BoundsOf(b).lo) return a;
  if (BoundsOf(b).hi <= BoundsOf(a).lo) return b;
  return Negated(builder, DimNode(builder, Op::kMax, AsTensor(builder, Negated(builder, a)),
                                  AsTensor(builder, Negated(builder, b))));
}

bool IsHostSize(UOp u) {
  constexpr size_t kMost = 256;
  std::vector<uint32_t> nodes{u.id()};
  for (size_t next = 0; next < nodes.size(); ++next) {
    const UOp node(u.graph(), nodes[next]);
    const bool leaf = node.is_const() || (node.is(Op::kVar) && node.num_src() == 0);
    if (nodes.size() > kMost || node.dtype() != DType::kInt64 || !node.shape().empty() ||
        (!leaf && !Is(node.op(), kAlu))) {
      return false;
    }
    for (uint32_t s : node.src_ids()) {
      if (std::ranges::find(nodes, s) == nodes.end()) nodes.push_back(s);
    }
  }
  return true;
}

}  // namespace telegrad
