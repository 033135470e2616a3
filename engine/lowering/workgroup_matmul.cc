// An f32 tile that is held in registers and a tile of a matrix instruction have the same operands:
// panels in local memory (workgroup_stage.h).
#include "engine/lowering/workgroup_matmul.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

bool Is16Bit(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// The LOAD that `value` is as f32.
UOp LoadOf(UOp value) {
  if (value.is(Op::kLoad) && value.dtype() == DType::kFloat32) return value;
  if (value.is(Op::kCast) && value.src(0).is(Op::kLoad) && Is16Bit(value.src(0).dtype())) {
    return value.src(0);
  }
  return {};
}

const MemoryAccess* AccessOf(const Work& work, UOp load) {
  const auto it = std::ranges::find(work.accesses, load.src(0), &MemoryAccess::address);
  return it == work.accesses.end() ? nullptr : &*it;
}

bool IsPlain(const MemoryAccess& a) {
  return a.address.num_src() == 2 && a.address.src(0).is(Op::kParam) &&
         std::ranges::none_of(a.stride, [](int64_t s) { return s == kIrregular; });
}

// The longest parallel range that `a` walks and `b` does not; -1 if there is none.
int OwnRange(const KernelShape& s, const MemoryAccess& a, const MemoryAccess& b) {
  int best = -1;
  for (RangeSet set = s.parallel & a.ranges & ~b.ranges; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    if (best < 0 || s.size[r] > s.size[best]) best = r;
  }
  return best;
}

}  // namespace

std::optional<Matmul> FindMatmul(const KernelShape& s) {
  const Work* fold = nullptr;
  for (const Work& work : s.works) {
    if (work.is_reduce() && fold != nullptr) return std::nullopt;
    if (work.is_reduce()) fold = &work;
  }
  if (fold == nullptr || s.in_place || std::popcount(fold->own) != 1) return std::nullopt;
  if ((fold->all & ~fold->own) != s.parallel) return std::nullopt;
  const UOp product = fold->root.src(0);
  if (static_cast<ReduceKind>(fold->root.arg(0)) != ReduceKind::kAdd || !product.is(Op::kMul) ||
      product.dtype() != DType::kFloat32 || fold->accesses.size() != 2) {
    return std::nullopt;
  }
  Matmul out;
  out.reduce = fold->root;
  out.a = LoadOf(product.src(0));
  out.b = LoadOf(product.src(1));
  if (!out.a.valid() || !out.b.valid() || out.a.dtype() != out.b.dtype()) return std::nullopt;
  const MemoryAccess* a = AccessOf(*fold, out.a);
  const MemoryAccess* b = AccessOf(*fold, out.b);
  if (a == nullptr || b == nullptr || !IsPlain(*a) || !IsPlain(*b)) return std::nullopt;
  const int m = OwnRange(s, *a, *b), n = OwnRange(s, *b, *a), k = std::countr_zero(fold->own);
  if (m < 0 || n < 0 || a->stride[k] == 0 || b->stride[k] == 0) return std::nullopt;
  out.m = s.d.ranges[m];
  out.n = s.d.ranges[n];
  out.k = s.d.ranges[k];
  const bool turned = std::ranges::any_of(s.works, [&](const Work& w) {
    return std::ranges::any_of(w.accesses,
                               [&](const MemoryAccess& x) { return x.store && x.stride[m] == 1; });
  });
  if (turned) {
    std::swap(out.a, out.b);
    std::swap(out.m, out.n);
  }
  return out;
}

std::optional<MmaKind> MmaFor(DType dtype) {
  for (const MmaInfo& mma : AllMmas()) {
    if (mma.scope == Scope::kWarp && !mma.async && mma.a == dtype && mma.b == dtype &&
        mma.c == DType::kFloat32) {
      return mma.kind;
    }
  }
  return std::nullopt;
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": with group = lane / 4 and
// pair = lane % 4, element i of a is in row group + 8 (i / 2 % 2) and column 2 pair + i % 2 +
// 8 (i / 4), of b in row 2 pair + i % 2 + 8 (i / 2) and column group, and of c in row
// group + 8 (i / 2) and column 2 pair + i % 2.
std::optional<Fragments> FragmentsFor(Rewriter& b, DType dtype, int64_t range_id) {
  const std::optional<MmaKind> kind = MmaFor(dtype);
  if (!kind) return std::nullopt;
  Graph& g = *b.graph();
  const MmaInfo& mma = AllMmas()[static_cast<size_t>(*kind)];
  const auto op = [&](Op op, UOp x, int64_t y) { return b.Make(op, {x, g.Index(y)}); };
  const auto add = [&](UOp x, UOp y) { return b.Make(Op::kAdd, {x, y}); };
  const auto lanes = [&](int64_t n) { return g.Make(Op::kIota, DType::kInt64, {}, {n}); };
  const auto half = [&](UOp i, int64_t by) {  // 0 or 8
    return op(Op::kMul, op(Op::kFloorMod, op(Op::kFloorDiv, i, by), 2), 8);
  };
  const auto odd = [&](UOp i) { return op(Op::kFloorMod, i, 2); };
  Fragments f;
  f.kind = *kind;
  f.lane = g.Range(range_id, AxisType::kWarp, g.Index(mma.threads));
  const UOp group = op(Op::kFloorDiv, f.lane, 4);
  const UOp pair = op(Op::kMul, op(Op::kFloorMod, f.lane, 4), 2);
  const UOp i = lanes(mma.a_size()), j = lanes(mma.b_size());
  f.a = {group, half(i, 2), pair, add(odd(i), half(i, 4))};
  f.b = {group, g.Index(0), pair, add(odd(j), half(j, 2))};
  const UOp l = lanes(mma.c_size());
  f.c.row = add(group, half(l, 2));
  f.c.column = add(pair, odd(l));
  f.zero = g.Make(Op::kMul, {g.Make(Op::kCast, DType::kFloat32, {l}),
                             g.ConstWord(DType::kFloat32, ScalarFromMemory(DType::kFloat32, 0))});
  return f;
}

}  // namespace telegrad
