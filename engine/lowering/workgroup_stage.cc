// The panel is copied in chunks of neighbouring elements, a chunk to a thread, as in
//
//   for it: chunk = it * threads + thread        row = chunk / chunks of a row
//     buffer[row, column] = operand[first t + ..., first k + ...]
//
// where a row runs along the range that is contiguous in the operand. Rows of which several are
// stored at once are taken in an order in which they fall onto different banks.
#include "engine/lowering/workgroup_stage.h"

#include <algorithm>

#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

// The elements of a chunk: as wide as an access may be, if every row begins at a multiple of it.
int64_t LanesOf(const PanelPlan& p, UOp fast, int64_t columns, int vector_bytes) {
  const int64_t lanes = vector_bytes / std::max<int64_t>(1, ByteSize(p.load.dtype()));
  if (lanes < 2 || columns % lanes != 0 || SizeOf(fast) % lanes != 0) return 1;
  const UOp index = p.load.src(0).src(1);
  const std::optional<Dependence> d = FindDependence(index);
  if (!d || StrideOf(index, fast) != 1) return 1;
  const bool aligned = std::ranges::all_of(d->ranges, [&](UOp range) {
    const std::optional<int64_t> stride = StrideOf(index, range);
    return range == fast || (stride && *stride % lanes == 0);
  });
  return aligned ? lanes : 1;
}

// Among `group` rows, those that are `step` apart are stored after each other.
struct RowOrder {
  int64_t group = 1, step = 1;
};

// An order in which rows that are stored at once fall onto different banks, as far as there is one.
// Where rows begin at multiples of 16 bytes, eight threads store 16 bytes each at once, the width
// of all banks; of rows of 2 chunks and a gap as wide as one, every second one has its banks for
// itself, of 4 chunks every fourth. Where they begin at multiples of 8, sixteen threads store half
// a chunk each at once; of rows of 4 chunks and a gap of half of one, these are two neighbours, and
// the two rows eight further on.
RowOrder OrderOf(int64_t row_chunks, int64_t lanes, int64_t pad) {
  if (pad == lanes && (row_chunks == 2 || row_chunks == 4)) return {8, row_chunks};
  if (2 * pad == lanes && row_chunks == 4) return {16, 8};
  return {};
}

// The row that is the n-th to be stored.
UOp RowAt(Rewriter& b, UOp n, const RowOrder& order) {
  Graph& g = *b.graph();
  const auto make = [&](Op op, UOp x, int64_t y) { return b.Make(op, {x, g.Index(y)}); };
  const UOp among = make(Op::kFloorMod, n, order.group);
  const int64_t in_steps = order.group / order.step;
  const UOp far = make(Op::kMul, make(Op::kFloorMod, among, in_steps), order.step);
  const UOp near = make(Op::kFloorDiv, among, in_steps);
  const UOp first = make(Op::kMul, make(Op::kFloorDiv, n, order.group), order.group);
  return b.Make(Op::kAdd, {first, b.Make(Op::kAdd, {far, near})});
}

}  // namespace

UOp Panel::At(Rewriter& b, UOp t, UOp k) const {
  Graph& g = *b.graph();
  return b.Make(Op::kAdd,
                {b.Make(Op::kMul, {t, g.Index(step_t)}), b.Make(Op::kMul, {k, g.Index(step_k)})});
}

Panel MakePanel(Rewriter& b, const PanelPlan& p, const std::vector<UOp>& threads, UOp loop,
                const Replacements& others, int vector_bytes, int64_t* next_id) {
  Graph& g = *b.graph();
  const UOp index = p.load.src(0).src(1);
  const bool rows_by_k = StrideOf(index, p.k.range) == 1;
  const PanelSide& row = rows_by_k ? p.t : p.k;
  const PanelSide& column = rows_by_k ? p.k : p.t;
  const int64_t lanes = LanesOf(p, column.range, column.count, vector_bytes);

  Panel panel;
  panel.step_t = p.by_k ? p.k.count + p.pad : 1;
  panel.step_k = p.by_k ? 1 : p.t.count + p.pad;
  const int64_t elements = p.by_k ? p.t.count * panel.step_t : p.k.count * panel.step_k;
  panel.buffer = g.Make(Op::kBuffer, p.load.dtype(), {},
                        {static_cast<int64_t>(AddressSpace::kLocal), p.slot, elements});

  UOp thread = g.Index(0);
  int64_t count = 1;
  for (UOp range : threads) {
    thread = b.Make(Op::kAdd, {b.Make(Op::kMul, {thread, g.Index(SizeOf(range))}), range});
    count *= SizeOf(range);
  }
  const int64_t row_chunks = column.count / lanes, chunks = row.count * row_chunks;
  const int64_t steps = (chunks + count - 1) / count;
  std::vector<UOp> end{UOp()};
  UOp chunk = thread;
  if (steps > 1) {
    end.push_back(g.Range((*next_id)++, AxisType::kLoop, g.Index(steps)));
    chunk = b.Make(Op::kAdd, {b.Make(Op::kMul, {end.back(), g.Index(count)}), thread});
  }
  end.insert(end.end(), threads.begin(), threads.end());
  UOp at_row = b.Make(Op::kFloorDiv, {chunk, g.Index(row_chunks)});
  const RowOrder order = rows_by_k == p.by_k ? OrderOf(row_chunks, lanes, p.pad) : RowOrder{};
  if (order.group > 1 && row.count % order.group == 0) at_row = RowAt(b, at_row, order);
  const UOp first =
      b.Make(Op::kMul, {b.Make(Op::kFloorMod, {chunk, g.Index(row_chunks)}), g.Index(lanes)});
  UOp at_column = first;
  if (lanes > 1) {
    end.push_back(g.Range((*next_id)++, AxisType::kVector, g.Index(lanes)));
    at_column = b.Make(Op::kAdd, {first, end.back()});
  }

  // A chunk lies all inside or all outside of the operand.
  UOp inside;
  const auto keep = [&](UOp value, int64_t size) {
    const UOp less = b.Make(Op::kCmpLt, {value, g.Index(size)});
    inside = inside.valid() ? b.Make(Op::kAnd, {inside, less}) : less;
  };
  const UOp row_value = b.Make(Op::kAdd, {row.first, at_row});
  const UOp column_value = b.Make(Op::kAdd, {column.first, at_column});
  if (SizeOf(row.range) % row.count != 0) keep(row_value, SizeOf(row.range));
  if (SizeOf(column.range) % column.count != 0) {
    keep(b.Make(Op::kAdd, {column.first, first}), SizeOf(column.range));
  }
  if (steps * count != chunks) keep(chunk, chunks);
  std::vector<UOp> address{p.load.src(0).src(0), index};
  if (inside.valid()) address.push_back(inside);
  Replacements with = others;
  with[row.range.id()] = {row_value, {}};
  with[column.range.id()] = {column_value, {}};
  const UOp value =
      Substitute(b, g.Make(Op::kLoad, {g.Make(Op::kIndex, DType::kVoid, address)}), with);

  const UOp base = loop.valid() ? g.Make(Op::kAfter, {panel.buffer, loop}) : panel.buffer;
  const UOp t = rows_by_k ? at_row : at_column, k = rows_by_k ? at_column : at_row;
  std::vector<UOp> target{base, panel.At(b, t, k)};
  if (steps * count != chunks) target.push_back(b.Make(Op::kCmpLt, {chunk, g.Index(chunks)}));
  end[0] = g.Make(Op::kStore, {g.Make(Op::kIndex, DType::kVoid, target), value});
  panel.fill = g.Make(Op::kEnd, DType::kVoid, end);
  return panel;
}

}  // namespace telegrad
