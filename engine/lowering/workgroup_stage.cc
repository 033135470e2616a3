// The panel is copied in chunks of neighbouring elements, a chunk to a thread, as in
//
//   for it: chunk = it * threads + thread        row = chunk / chunks of a row
//     buffer[row, column] = operand[first t + ..., first k + ...]
//
// where a row runs along the range that is contiguous in the operand. Rows of which several are
// stored at once are taken in an order in which they fall onto different banks.
#include "engine/lowering/workgroup_stage.h"

#include <algorithm>
#include <array>

#include "engine/lowering/panel_order.h"
#include "engine/lowering/ranges.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// What is staged: of each range one tile.
struct PanelPlan {
  UOp load;
  const SplitRange &t, &k;  // the tile's range, the reduced one
  bool by_k;                // neighbours in local memory are neighbours along k, else along t
  int64_t pad;              // elements between rows, so that those do not fall onto the same banks
  int64_t slot;             // of the BUFFER
};

struct Panel {
  UOp buffer;
  UOp fill;                // the nest that copies
  int64_t step_t, step_k;  // in elements

  // Where element (t, k) of the panel is.
  UOp At(Rewriter& b, UOp t, UOp k) const {
    Graph& g = *b.graph();
    return b.Make(Op::kAdd,
                  {b.Make(Op::kMul, {t, g.Index(step_t)}), b.Make(Op::kMul, {k, g.Index(step_k)})});
  }
};

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

// The threads fill the panel, neighbours by neighbours. `loop`, if valid, is the range that fills
// it anew; `others` says what becomes of the load's other ranges.
Panel MakePanel(Rewriter& b, const PanelPlan& p, const std::vector<UOp>& threads, UOp loop,
                const Replacements& others, int vector_bytes, int64_t* next_id) {
  Graph& g = *b.graph();
  const UOp index = p.load.src(0).src(1);
  const bool rows_by_k = RunsAlongReduced(b, p.load, p.t.range, p.k.range);
  const SplitRange& row = rows_by_k ? p.t : p.k;
  const SplitRange& column = rows_by_k ? p.k : p.t;
  const int64_t lanes =
      NeighboursAlong(b, p.load, column.range, column.tile,
                      vector_bytes / std::max<int64_t>(1, ByteSize(p.load.dtype())));

  const auto first_of = [&](const SplitRange& s) {
    return b.Make(Op::kMul, {s.outer, g.Index(s.tile)});
  };
  const UOp first_t = first_of(p.t), first_k = first_of(p.k);
  const UOp row_first = rows_by_k ? first_t : first_k, column_first = rows_by_k ? first_k : first_t;

  Panel panel;
  panel.step_t = p.by_k ? p.k.tile + p.pad : 1;
  panel.step_k = p.by_k ? 1 : p.t.tile + p.pad;
  const int64_t elements = p.by_k ? p.t.tile * panel.step_t : p.k.tile * panel.step_k;
  panel.buffer = g.Make(Op::kBuffer, p.load.dtype(), {},
                        {static_cast<int64_t>(AddressSpace::kLocal), p.slot, elements});

  const UOp thread = RowMajor(b, threads);
  int64_t count = 1;
  for (UOp range : threads) count *= SizeOf(range);
  const int64_t row_chunks = column.tile / lanes, chunks = row.tile * row_chunks;
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
  if (order.group > 1 && row.tile % order.group == 0) at_row = RowAt(b, at_row, order);
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
  const UOp row_value = b.Make(Op::kAdd, {row_first, at_row});
  const UOp column_value = b.Make(Op::kAdd, {column_first, at_column});
  if (row.size % row.tile != 0) keep(row_value, row.size);
  if (column.size % column.tile != 0) {
    keep(b.Make(Op::kAdd, {column_first, first}), column.size);
  }
  if (steps * count != chunks) keep(chunk, chunks);
  if (p.load.src(0).num_src() == 3) {
    const UOp given = p.load.src(0).src(2);
    inside = inside.valid() ? g.Make(Op::kAnd, {given, inside}) : given;
  }
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

}  // namespace

// A fragment of an operand is a vector: the lane's part of the place is added before the element's.
void StageProduct(Rewriter& b, const Target& target, const StagedProduct& plan, int64_t* next_id,
                  Replacements* with) {
  Graph& g = *b.graph();
  const Matmul& p = plan.product;
  const Fragments* const mma = plan.fragments;
  const UOp loop = plan.k.outer.is(Op::kRange) ? plan.k.outer : UOp();
  const int local_bytes = CostsOf(target).group.local_bytes;
  std::array<Panel, 2> panels;
  for (size_t i = 0; i < panels.size(); ++i) {
    const UOp load = i == 0 ? p.a : p.b;
    const bool by_k = mma != nullptr && RunsAlongReduced(b, load, i == 0 ? p.m : p.n, p.k);
    // MFMA reads 8 bytes of 16 rows at once, which with the other gap would meet in pairs.
    const int pad_bytes =
        by_k && target.matrix == MatrixUnit::kMfma ? local_bytes / 2 : local_bytes;
    const int64_t pad = pad_bytes / ByteSize(load.dtype());
    const PanelPlan panel{load, i == 0 ? plan.m : plan.n, plan.k, by_k,
                          pad,  static_cast<int64_t>(i)};
    panels[i] = MakePanel(b, panel, plan.threads, loop, *with, local_bytes, next_id);
  }
  const auto staged = [&](size_t i, const FragmentPlace* at) {
    const UOp filled = g.Make(Op::kAfter, {panels[i].buffer, panels[0].fill, panels[1].fill});
    UOp index = panels[i].At(b, (i == 0 ? plan.m : plan.n).within, plan.k.within);
    if (at != nullptr) {
      index = b.Make(Op::kAdd, {index, panels[i].At(b, at->scalar_t, at->scalar_k)});
      index = g.Make(Op::kAdd, {index, panels[i].At(b, at->vector_t, at->vector_k)});
    }
    return g.Make(Op::kLoad, {g.Make(Op::kIndex, {filled, index})});
  };
  if (mma == nullptr) {
    (*with)[p.a.id()] = {staged(0, nullptr), {}};
    (*with)[p.b.id()] = {staged(1, nullptr), {}};
    return;
  }
  const std::vector<UOp>& ranges = plan.k.with.ranges;
  const std::vector<int64_t> kind(p.reduce.arg().begin(), p.reduce.arg().end());
  std::vector<UOp> fold{g.Make(Op::kMma, DType::kVoid,
                               {staged(0, &mma->a), staged(1, &mma->b), mma->zero},
                               {static_cast<int64_t>(mma->kind), 0, 0})};
  fold.insert(fold.end(), ranges.begin(), ranges.end());
  (*with)[p.reduce.id()] = {
      ranges.empty() ? fold[0] : g.Make(Op::kReduce, DType::kVoid, fold, kind), {}};
}

}  // namespace telegrad
