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

void AddConditions(UOp gate, std::vector<UOp>* to) {
  std::vector<UOp> stack{gate};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(Op::kAnd)) {
      stack.insert(stack.end(), {u.src(0), u.src(1)});
    } else {
      to->push_back(u);
    }
  }
}

// Whether a load is 0 wherever `gate` is false, by its own gate.
bool IsZeroWithout(UOp load, UOp gate) {
  if (load.src(0).num_src() != 3) return false;
  std::vector<UOp> known, wanted;
  AddConditions(load.src(0).src(2), &known);
  AddConditions(gate, &wanted);
  return std::ranges::all_of(wanted,
                             [&](UOp u) { return std::ranges::find(known, u) != known.end(); });
}

// The LOAD that `value` is as f32. A padded one that is converted is selected once more.
UOp LoadOf(UOp value) {
  UOp gate;
  if (value.is(Op::kWhere) && value.src(2).is_const() && value.src(2).const_word() == 0) {
    gate = value.src(0);
    value = value.src(1);
  }
  UOp load = value;
  if (value.is(Op::kCast) && value.dtype() == DType::kFloat32 && Is16Bit(value.src(0).dtype())) {
    load = value.src(0);
  }
  if (!load.is(Op::kLoad) || (load == value && value.dtype() != DType::kFloat32)) return {};
  return !gate.valid() || IsZeroWithout(load, gate) ? load : UOp();
}

const MemoryAccess* AccessOf(const Work& work, UOp load) {
  const auto it = std::ranges::find(work.accesses, load.src(0), &MemoryAccess::address);
  return it == work.accesses.end() ? nullptr : &*it;
}

// Whether ranges alone say where `a` is and whether it is read.
bool IsPlain(const MemoryAccess& a) {
  if (!a.address.src(0).is(Op::kParam)) return false;
  const Graph& g = *a.address.graph();
  for (int i = 1; i < a.address.num_src(); ++i) {
    const std::vector<uint32_t> nodes = PostOrder(a.address.src(i));
    if (std::ranges::any_of(
            nodes, [&](uint32_t id) { return g.op(id) == Op::kLoad || g.op(id) == Op::kReduce; })) {
      return false;
    }
  }
  return true;
}

// Whether some store changes what `a` reads. Other memory may be read and written: the thread that
// writes an element is the one that has read it.
bool IsWritten(const KernelShape& s, const MemoryAccess& a) {
  return std::ranges::any_of(s.works, [&](const Work& w) {
    return std::ranges::any_of(w.accesses, [&](const MemoryAccess& x) {
      return x.store && Memory(x.address) == Memory(a.address);
    });
  });
}

bool IsStoredAlong(const KernelShape& s, int range) {
  return std::ranges::any_of(s.works, [&](const Work& w) {
    return std::ranges::any_of(
        w.accesses, [&](const MemoryAccess& x) { return x.store && x.stride[range] == 1; });
  });
}

// Of equally long ones, that along which stores are neighbours.
int LongestRange(const KernelShape& s, RangeSet set) {
  int best = -1;
  for (; set != 0; set &= set - 1) {
    const int r = std::countr_zero(set);
    const int64_t more = best < 0 ? 1 : s.size[r] - s.size[best];
    if (more > 0 || (more == 0 && IsStoredAlong(s, r))) best = r;
  }
  return best;
}

}  // namespace

std::optional<Product> FindProduct(const KernelShape& s) {
  const Work* fold = nullptr;
  for (const Work& work : s.works) {
    if (work.is_reduce() && fold != nullptr) return std::nullopt;
    if (work.is_reduce()) fold = &work;
  }
  if (fold == nullptr || (fold->all & ~fold->own) != s.parallel) return std::nullopt;
  const UOp product = fold->root.src(0);
  if (static_cast<ReduceKind>(fold->root.arg(0)) != ReduceKind::kAdd || !product.is(Op::kMul) ||
      product.dtype() != DType::kFloat32 || fold->accesses.size() != 2) {
    return std::nullopt;
  }
  Product out{.reduce = fold->root,
              .a = LoadOf(product.src(0)),
              .b = LoadOf(product.src(1)),
              .k = fold->own};
  if (!out.a.valid() || !out.b.valid() || out.a.dtype() != out.b.dtype()) return std::nullopt;
  const MemoryAccess* a = AccessOf(*fold, out.a);
  const MemoryAccess* b = AccessOf(*fold, out.b);
  if (a == nullptr || b == nullptr || !IsPlain(*a) || !IsPlain(*b)) return std::nullopt;
  if (IsWritten(s, *a) || IsWritten(s, *b)) return std::nullopt;
  const RangeSet of_a = a->ranges | a->gate, of_b = b->ranges | b->gate;
  out.m = s.parallel & of_a & ~of_b;
  out.n = s.parallel & of_b & ~of_a;
  if (out.m == 0 || out.n == 0 || (out.k & ~(of_a & of_b)) != 0) return std::nullopt;
  return out;
}

std::optional<Matmul> FindMatmul(const KernelShape& s) {
  const std::optional<Product> p = FindProduct(s);
  if (!p || std::popcount(p->k) != 1) return std::nullopt;
  const int m = LongestRange(s, p->m), n = LongestRange(s, p->n);
  Matmul out{p->reduce,     p->a,          p->b,
             s.d.ranges[m], s.d.ranges[n], s.d.ranges[std::countr_zero(p->k)]};
  if (IsStoredAlong(s, m)) {
    std::swap(out.a, out.b);
    std::swap(out.m, out.n);
  }
  return out;
}

std::optional<MmaKind> MmaFor(MatrixUnit unit, DType dtype, int64_t columns) {
  for (const MmaInfo& mma : AllMmas()) {
    if (mma.unit == unit && mma.scope == Scope::kWarp && !mma.async && mma.a == dtype &&
        mma.b == dtype && mma.c == DType::kFloat32 && (columns == 0 || mma.n == columns)) {
      return mma.kind;
    }
  }
  return std::nullopt;
}

namespace {

// Puts together where elements lie.
class Placer {
 public:
  explicit Placer(Rewriter& b) : b_(b), g_(*b.graph()) {}
  UOp Number(int64_t x) { return g_.Index(x); }
  UOp Lanes(int64_t n) { return g_.Make(Op::kIota, DType::kInt64, {}, {n}); }
  UOp Div(UOp x, int64_t y) { return b_.Make(Op::kFloorDiv, {x, Number(y)}); }
  UOp Mod(UOp x, int64_t y) { return b_.Make(Op::kFloorMod, {x, Number(y)}); }
  UOp Mul(UOp x, int64_t y) { return b_.Make(Op::kMul, {x, Number(y)}); }
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }

 private:
  Rewriter& b_;
  Graph& g_;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": with group = lane / 4 and
// pair = lane % 4, element i of a is in row group + 8 (i / 2 % 2) and column 2 pair + i % 2 +
// 8 (i / 4), of b in row 2 pair + i % 2 + 8 (i / 2 % 2) and column group + 8 (i / 4), and of c in
// row group + 8 (i / 2 % 2) and column 2 pair + i % 2 + 8 (i / 4), where elements 4 and on of b and
// c are there only in a second instruction. So a lane's elements 2 j and 2 j + 1 are what
// LOAD_MATRIX gives it of matrix j, whose rows are those of a, or the columns of b: of a that in
// rows 8 (j % 2) and columns 8 (j / 2), of b that in rows 8 (j % 2) and columns 8 (j / 2). Lane
// 8 j + r names row r of it.
void PlaceSm80(Placer p, const MmaInfo& mma, Fragments* f) {
  const UOp group = p.Div(f->lane, 4), pair = p.Mul(p.Mod(f->lane, 4), 2);
  const auto half = [&](UOp i, int64_t by) { return p.Mul(p.Mod(p.Div(i, by), 2), 8); };
  const UOp l = p.Lanes(mma.c_size()), in_matrix = p.Mod(f->lane, 8);
  // Nodes are made one after another, not as arguments of one call, whose order compilers choose.
  const UOp first = half(f->lane, 8), second = half(f->lane, 16);
  f->a = {.scalar_t = first, .scalar_k = second, .row = in_matrix};
  const bool two = mma.b_size() > 4;
  f->b = {.scalar_t = two ? second : p.Number(0), .scalar_k = first, .row = in_matrix};
  const UOp row = half(l, 2), odd = p.Mod(l, 2), right = two ? p.Add(odd, half(l, 4)) : odd;
  f->c = {p.Add(group, row), p.Add(pair, right)};
}

// AMD's instruction set guides, on MFMA and WMMA: a lane has row, or column, lane % 16 of a and b,
// of which each group of 16 lanes has `run` elements; and of c column lane % 16, of which RDNA 3
// gives the groups every other row, and others `run` rows after one another.
void PlaceAmd(Placer p, const MmaInfo& mma, int64_t run, Fragments* f) {
  const UOp column = p.Mod(f->lane, 16), group = p.Div(f->lane, 16);
  const UOp i = p.Lanes(mma.a_size()), l = p.Lanes(mma.c_size());
  const UOp first = run == 16 ? p.Number(0) : p.Mul(group, run);
  f->a = f->b = {column, p.Number(0), first, i, {}};
  f->c = {run == 16 ? p.Add(group, p.Mul(l, 2)) : p.Add(first, l), column};
}

}  // namespace

std::optional<Fragments> FragmentsFor(Rewriter& b, MatrixUnit unit, DType dtype, int64_t columns,
                                      int64_t range_id) {
  const std::optional<MmaKind> kind = MmaFor(unit, dtype, columns);
  if (!kind) return std::nullopt;
  Graph& g = *b.graph();
  const MmaInfo& mma = AllMmas()[static_cast<size_t>(*kind)];
  Fragments f;
  f.kind = *kind;
  f.lane = g.Range(range_id, AxisType::kWarp, g.Index(mma.threads));
  const Placer p(b);
  switch (unit) {
    case MatrixUnit::kSm80:
      PlaceSm80(p, mma, &f);
      break;
    case MatrixUnit::kMfma:
    case MatrixUnit::kRdna3:
    case MatrixUnit::kRdna4:
      PlaceAmd(p, mma, mma.a_size(), &f);
      break;
    default:
      return std::nullopt;
  }
  f.zero = g.Make(Op::kMul, {g.Make(Op::kCast, DType::kFloat32, {Placer(b).Lanes(mma.c_size())}),
                             g.ConstWord(DType::kFloat32, ScalarFromMemory(DType::kFloat32, 0))});
  return f;
}

}  // namespace telegrad
