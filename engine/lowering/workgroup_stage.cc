// The panel is copied in chunks of neighbouring elements, a chunk to a thread, as in
//
//   for it: chunk = it * threads + thread        row = chunk / chunks of a row
//     buffer[row, column] = operand[first t + ..., first k + ...]
//
// where a row runs along the range that is contiguous in the operand. Rows of which several are
// stored at once are taken in an order in which they fall onto different banks.
//
// A ring has several panels, and a chunk is an asynchronous copy: the first tiles are copied before
// the loop, and each iteration begins to copy a later tile than its own.
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
  int64_t ring;             // panels that asynchronous copies fill in turns; 1: threads fill one
};

// How many tiles before it is read a ring's panel is filled. A thread may still read the tile
// before the one that others copy for: one panel is for that.
int64_t TilesAhead(int64_t ring) { return ring - 2; }

struct Panel {
  UOp buffer;
  bool by_k;               // as of its plan
  UOp fill;                // the nest that copies
  std::vector<UOp> begin;  // of a ring: those that copy the first tiles, before the loop
  UOp now;                 // of a ring: the first element of the panel that is read; else 0
  int64_t step_t, step_k;  // in elements

  // Where element (t, k) of a panel is.
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

// The threads fill the panel, neighbours by neighbours; elements that the operand does not have are
// 0. `others` says what becomes of the load's other ranges.
class PanelMaker {
 public:
  PanelMaker(Rewriter& b, const PanelPlan& plan, const std::vector<UOp>& threads,
             const Replacements& others, int vector_bytes)
      : b_(b),
        g_(*b.graph()),
        p_(plan),
        others_(others),
        rows_by_k_(RunsAlongReduced(b, plan.load, plan.t.range, plan.k.range)),
        row_(rows_by_k_ ? plan.t : plan.k),
        column_(rows_by_k_ ? plan.k : plan.t),
        lanes_(LanesOf(vector_bytes)),
        threads_(threads),
        thread_(RowMajor(b, threads)) {
    for (UOp range : threads) count_ *= SizeOf(range);
    row_chunks_ = column_.tile / lanes_;
    chunks_ = row_.tile * row_chunks_;
  }

  // `loops` fill the panel anew, outermost first; of a ring the last one counts the tiles of k.
  Panel Run(const std::vector<UOp>& loops, int64_t* next_id) {
    Panel panel;
    panel.by_k = p_.by_k;
    panel.step_t = p_.by_k ? p_.k.tile + p_.pad : 1;
    panel.step_k = p_.by_k ? 1 : p_.t.tile + p_.pad;
    const int64_t elements = p_.by_k ? p_.t.tile * panel.step_t : p_.k.tile * panel.step_k;
    panel.buffer =
        g_.Make(Op::kBuffer, p_.load.dtype(), {},
                {static_cast<int64_t>(AddressSpace::kLocal), p_.slot, elements * p_.ring});
    panel.now = g_.Index(0);
    if (p_.ring == 1) {
      panel.fill = Fill(panel, After(panel.buffer, loops), p_.k.outer, {}, panel.now, next_id);
      return panel;
    }
    const std::vector<UOp> around(loops.begin(), loops.end() - 1);
    const UOp tile = p_.k.outer, base = After(panel.buffer, around);
    const int64_t tiles = SizeOf(loops.back()), ahead = TilesAhead(p_.ring);
    const auto place = [&](UOp number) {
      return Mul(b_.Make(Op::kFloorMod, {number, g_.Index(p_.ring)}), elements);
    };
    for (int64_t i = 0; i < std::min(ahead, tiles); ++i) {
      panel.begin.push_back(Fill(panel, base, g_.Index(i), {}, place(g_.Index(i)), next_id));
    }
    const UOp later = Add(tile, g_.Index(ahead));
    const UOp exists = b_.Make(Op::kCmpLt, {later, g_.Index(tiles)});
    // Where there is none, the last one is not copied again: its address is inside of the operand.
    const UOp least = b_.Make(Op::kMax, {Mul(later, -1), g_.Index(1 - tiles)});
    panel.fill = Fill(panel, panel.buffer, Mul(least, -1), exists, place(later), next_id);
    panel.now = place(tile);
    return panel;
  }

 private:
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t y) { return b_.Make(Op::kMul, {x, g_.Index(y)}); }
  UOp Both(UOp x, UOp y) { return !x.valid() ? y : !y.valid() ? x : g_.Make(Op::kAnd, {x, y}); }
  UOp Less(UOp x, int64_t y) { return b_.Make(Op::kCmpLt, {x, g_.Index(y)}); }

  UOp After(UOp buffer, const std::vector<UOp>& loops) {
    if (loops.empty()) return buffer;
    std::vector<UOp> src{buffer};
    src.insert(src.end(), loops.begin(), loops.end());
    return g_.Make(Op::kAfter, DType::kVoid, src);
  }

  // A copy's elements are neighbours on both sides.
  int64_t LanesOf(int vector_bytes) {
    if (p_.ring > 1 && rows_by_k_ != p_.by_k) return 1;
    return NeighboursAlong(b_, p_.load, column_.range, column_.tile,
                           vector_bytes / std::max<int64_t>(1, ByteSize(p_.load.dtype())));
  }

  // The nest that fills the panel from element `place` on with tile `tile` of k, which is there
  // only where `exists`, if valid, is true.
  UOp Fill(const Panel& panel, UOp base, UOp tile, UOp exists, UOp place, int64_t* next_id) {
    const int64_t steps = (chunks_ + count_ - 1) / count_;
    std::vector<UOp> end{UOp()};
    UOp chunk = thread_;
    if (steps > 1) {  // copies that are waited for are written out
      const AxisType type = p_.ring > 1 ? AxisType::kUpcast : AxisType::kLoop;
      end.push_back(g_.Range((*next_id)++, type, g_.Index(steps)));
      chunk = Add(Mul(end.back(), count_), thread_);
    }
    end.insert(end.end(), threads_.begin(), threads_.end());
    UOp at_row = b_.Make(Op::kFloorDiv, {chunk, g_.Index(row_chunks_)});
    const RowOrder order =
        rows_by_k_ == p_.by_k ? OrderOf(row_chunks_, lanes_, p_.pad) : RowOrder{};
    if (order.group > 1 && row_.tile % order.group == 0) at_row = RowAt(b_, at_row, order);
    const UOp first = Mul(b_.Make(Op::kFloorMod, {chunk, g_.Index(row_chunks_)}), lanes_);
    UOp at_column = first;
    if (lanes_ > 1 && p_.ring == 1) {
      end.push_back(g_.Range((*next_id)++, AxisType::kVector, g_.Index(lanes_)));
      at_column = Add(first, end.back());
    }

    // A chunk lies all inside or all outside of the operand.
    const auto begin = [&](const SplitRange& side) {
      return Mul(side.range == p_.k.range ? tile : side.outer, side.tile);
    };
    const UOp row_first = begin(row_), column_first = begin(column_);
    const UOp row_value = Add(row_first, at_row), column_value = Add(column_first, at_column);
    UOp inside;
    if (row_.size % row_.tile != 0) {
      inside = Both(inside, Less(row_value, row_.size));
    }
    if (column_.size % column_.tile != 0) {
      inside = Both(inside, Less(Add(column_first, first), column_.size));
    }
    const UOp used = steps * count_ != chunks_ ? Less(chunk, chunks_) : UOp();
    inside = Both(inside, used);
    const UOp given = p_.load.src(0);
    if (given.num_src() == 3) inside = Both(given.src(2), inside);
    std::vector<UOp> address{given.src(0), given.src(1)};
    if (inside.valid()) address.push_back(inside);
    Replacements with = others_;
    with[row_.range.id()] = {row_value, {}};
    with[column_.range.id()] = {column_value, {}};
    const UOp from = Substitute(b_, g_.Make(Op::kIndex, DType::kVoid, address), with);

    const UOp t = rows_by_k_ ? at_row : at_column, k = rows_by_k_ ? at_column : at_row;
    std::vector<UOp> target{base, Add(panel.At(b_, t, k), place)};
    if (const UOp gate = Both(exists, used); gate.valid()) target.push_back(gate);
    const UOp to = g_.Make(Op::kIndex, DType::kVoid, target);
    end[0] = p_.ring > 1
                 ? g_.Make(Op::kCopyAsync, DType::kVoid, {to, from}, {1, lanes_, lanes_, lanes_})
                 : g_.Make(Op::kStore, {to, g_.Make(Op::kLoad, {from})});
    return g_.Make(Op::kEnd, DType::kVoid, end);
  }

  Rewriter& b_;
  Graph& g_;
  const PanelPlan& p_;
  const Replacements& others_;
  const bool rows_by_k_;
  const SplitRange &row_, &column_;
  const int64_t lanes_;
  const std::vector<UOp>& threads_;
  UOp thread_;         // its number
  int64_t count_ = 1;  // threads
  int64_t row_chunks_ = 1, chunks_ = 1;
};

// Matrices of which a row, or where neighbours are not along k a column, lies in one row of local
// memory.
UOp LoadMatrices(Rewriter& b, const Panel& panel, const FragmentPlace& at, UOp filled, UOp index,
                 int64_t count) {
  Graph& g = *b.graph();
  const UOp zero = g.Index(0);
  const UOp matrix = panel.At(b, at.scalar_t, at.scalar_k);
  const UOp row = panel.by_k ? panel.At(b, at.row, zero) : panel.At(b, zero, at.row);
  // What only the lane decides comes first: that is computed once, before the loop.
  const UOp lanes = b.Make(Op::kAdd, {index, b.Make(Op::kAdd, {matrix, row})});
  index = b.Make(Op::kAdd, {panel.now, lanes});
  return g.Make(Op::kLoadMatrix, DType::kVoid, {g.Make(Op::kIndex, {filled, index})},
                {count, panel.by_k ? 0 : 1});
}

// What the panels are filled by: nests of the threads, or copies that are waited for.
std::vector<UOp> FilledBy(Graph& g, const std::array<Panel, 2>& panels, int64_t ring) {
  if (ring == 1) return {panels[0].fill, panels[1].fill};
  const auto wait = [&](const std::vector<UOp>& copies, int64_t running) {
    return g.Make(Op::kWait, DType::kVoid, copies, std::vector<int64_t>{running});
  };
  std::vector<UOp> begin = panels[0].begin;
  begin.insert(begin.end(), panels[1].begin.begin(), panels[1].begin.end());
  std::vector<UOp> out;
  if (!begin.empty()) out.push_back(wait(begin, 0));
  out.push_back(wait({panels[0].fill, panels[1].fill}, TilesAhead(ring)));
  return out;
}

}  // namespace

// A fragment of an operand is a vector: the lane's part of the place is added before the element's.
void StageProduct(Rewriter& b, const Target& target, const StagedProduct& plan, int64_t* next_id,
                  Replacements* with) {
  Graph& g = *b.graph();
  const Matmul& p = plan.product;
  const Fragments* const mma = plan.fragments;
  const int64_t ring = plan.k.outer.is(Op::kRange) ? plan.ring : 1;
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
                          pad,  static_cast<int64_t>(i),  ring};
    panels[i] = PanelMaker(b, panel, plan.threads, *with, local_bytes).Run(plan.loops, next_id);
  }
  const std::vector<UOp> filled_by = FilledBy(g, panels, ring);
  const auto staged = [&](size_t i, const FragmentPlace* at) {
    std::vector<UOp> after{panels[i].buffer};
    after.insert(after.end(), filled_by.begin(), filled_by.end());
    const UOp filled = g.Make(Op::kAfter, DType::kVoid, after);
    UOp index = panels[i].At(b, (i == 0 ? plan.m : plan.n).within, plan.k.within);
    if (at != nullptr && at->row.valid()) {
      const int64_t matrices = (i == 0 ? mma->info().a_size() : mma->info().b_size()) / 2;
      return LoadMatrices(b, panels[i], *at, filled, index, matrices);
    }
    index = b.Make(Op::kAdd, {index, panels[i].now});
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
