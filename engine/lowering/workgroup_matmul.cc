// An f32 tile that is held in registers and a tile of a matrix instruction have the same operands:
// panels in local memory (workgroup_stage.h).
#include "engine/lowering/workgroup_matmul.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/ir/fragment.h"
#include "engine/ir/product_tile.h"
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

// A padded one that is converted is selected once more.
UOp FactorLoad(UOp value) {
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

bool DependsOn(UOp u, UOp range) {
  const std::optional<Dependence> d = FindDependence(u);
  return !d || d->Depends(u, range);
}

std::optional<RowProduct> FindRowProduct(UOp value, UOp row, UOp column) {
  RowProduct out;
  const Graph& g = *value.graph();
  for (uint32_t id : PostOrder(value)) {
    if (g.op(id) != Op::kReduce) continue;
    if (out.reduce.valid()) return std::nullopt;
    out.reduce = g.at(id);
  }
  const UOp reduce = out.reduce;
  if (!reduce.valid() || reduce.reduce_kind() != ReduceKind::kAdd || reduce.num_src() != 2 ||
      !reduce.src(0).is(Op::kMul) || !reduce.src(1).src(0).is_const()) {
    return std::nullopt;
  }
  out.k = reduce.src(1);
  const UOp x = FactorLoad(reduce.src(0).src(0)), y = FactorLoad(reduce.src(0).src(1));
  if (!x.valid() || !y.valid()) return std::nullopt;
  const bool first = DependsOn(x, row);
  out.rows = first ? x : y;
  out.columns = first ? y : x;
  const bool apart = DependsOn(out.rows, row) && !DependsOn(out.rows, column) &&
                     DependsOn(out.columns, column) && !DependsOn(out.columns, row);
  return apart ? std::optional(out) : std::nullopt;
}

std::optional<Product> FindProduct(const KernelShape& s) {
  const Work* fold = nullptr;
  for (const Work& work : s.works) {
    if (work.is_reduce() && fold != nullptr) return std::nullopt;
    if (work.is_reduce()) fold = &work;
  }
  if (fold == nullptr || (fold->all & ~fold->own) != s.parallel) return std::nullopt;
  const UOp product = fold->root.src(0);
  if (fold->root.reduce_kind() != ReduceKind::kAdd || !product.is(Op::kMul) ||
      product.dtype() != DType::kFloat32 || fold->accesses.size() != 2) {
    return std::nullopt;
  }
  Product out{.reduce = fold->root,
              .a = FactorLoad(product.src(0)),
              .b = FactorLoad(product.src(1)),
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
  const bool rows = StoresAlongRows(s.matrix, p->a.dtype());
  if (IsStoredAlong(s, rows ? n : m)) {
    std::swap(out.a, out.b);
    std::swap(out.m, out.n);
  }
  return out;
}

namespace {

// Puts together where elements of fragments lie.
class Placer {
 public:
  explicit Placer(Rewriter& b) : b_(b), g_(*b.graph()) {}

  UOp Lanes(int64_t n) { return g_.Make(Op::kIota, DType::kInt64, {}, {n}); }

  // Along the axis, of the digits that `number` / `below` is written in, where `number` is less
  // than `count`.
  UOp Along(char axis, std::span<const FragmentDigit> digits, UOp number, int64_t count,
            int64_t below = 1) {
    UOp place;
    for (const FragmentDigit& digit : digits) {
      if (below >= count) break;  // it is 0
      if (digit.axis == axis && digit.stride > 0) {
        UOp x = below > 1 ? Make(Op::kFloorDiv, number, below) : number;
        if (below * digit.size < count) x = Make(Op::kFloorMod, x, digit.size);
        if (digit.stride > 1) x = Make(Op::kMul, x, digit.stride);
        place = place.valid() ? Add(place, x) : x;
      }
      below *= digit.size;
    }
    return place.valid() ? place : g_.Index(0);
  }
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }

  // Of an operand with `t` as its axis that is not reduced, of which a lane has so many elements.
  FragmentPlace Operand(const FragmentRow& row, char t, const MmaInfo& mma, UOp lane,
                        int64_t elements) {
    if (mma.by_rows) return ByRows(row, t, lane, elements);
    const UOp i = Lanes(elements);
    FragmentPlace out;
    out.scalar_t = Along(t, row.threads.all(), lane, mma.threads);
    out.vector_t = Along(t, row.elements.all(), i, elements);
    out.scalar_k = Along('k', row.threads.all(), lane, mma.threads);
    out.vector_k = Along('k', row.elements.all(), i, elements);
    return out;
  }

 private:
  // Lane 8 j + r names row r of matrix j, whose place is that of element 2 j of a fragment. Lanes
  // beyond the last matrix name rows again.
  FragmentPlace ByRows(const FragmentRow& row, char t, UOp lane, int64_t elements) {
    const std::span<const FragmentDigit> pair = row.elements.all().first(1);
    const std::span<const FragmentDigit> matrix = row.elements.all().subspan(1);
    const int64_t lanes = kMatrixRows * elements / pair[0].size;
    FragmentPlace out;
    out.row = Make(Op::kFloorMod, lane, kMatrixRows);
    const UOp number = lanes < SizeOf(lane) ? Make(Op::kFloorMod, lane, lanes) : lane;
    out.scalar_t = Along(t, matrix, number, lanes, kMatrixRows);
    out.scalar_k = Along('k', matrix, number, lanes, kMatrixRows);
    return out;
  }
  UOp Make(Op op, UOp x, int64_t y) { return b_.Make(op, {x, g_.Index(y)}); }

  Rewriter& b_;
  Graph& g_;
};

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
  const FragmentRow* const rows[3] = {FindFragment(unit, 'a'), FindFragment(unit, 'b'),
                                      FindFragment(unit, 'c')};
  if (std::ranges::find(rows, nullptr) != std::end(rows)) return std::nullopt;
  Placer p(b);
  f.a = p.Operand(*rows[0], 'm', mma, f.lane, mma.a_size());
  f.b = p.Operand(*rows[1], 'n', mma, f.lane, mma.b_size());
  const UOp l = p.Lanes(mma.c_size());
  // Nodes are made one after another, not as arguments of one call, whose order compilers choose.
  const auto place = [&](char axis) {
    const UOp lanes = p.Along(axis, rows[2]->threads.all(), f.lane, mma.threads);
    return p.Add(lanes, p.Along(axis, rows[2]->elements.all(), l, mma.c_size()));
  };
  f.c.row = place('m');
  f.c.column = place('n');
  f.zero = g.Make(Op::kMul, {g.Make(Op::kCast, DType::kFloat32, {p.Lanes(mma.c_size())}),
                             g.ConstWord(DType::kFloat32, ScalarFromMemory(DType::kFloat32, 0))});
  return f;
}

}  // namespace telegrad
