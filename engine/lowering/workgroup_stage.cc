// Each operand's tile lies in local memory in rows along the tile's range or along what is reduced,
// and the threads copy it in chunks that run along the range that is contiguous in the operand
// (staging.h).
#include "engine/lowering/workgroup_stage.h"

#include <algorithm>
#include <array>

#include "engine/lowering/panel_order.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/staging.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// An operand's tile: of the tile's range t, and of the reduced range k.
struct Panel {
  Staging staging;
  bool by_k;  // rows in local memory run along k, else along t
  StagedTile tile = {};

  // Where element (t, k) of the tile is, from the tile's first on.
  UOp At(Rewriter& b, UOp t, UOp k) const {
    const UOp place[] = {by_k ? t : k, by_k ? k : t};
    return staging.layout.At(b, place);
  }
};

// How many neighbours a thread copies at once. A copy's elements are neighbours on both sides; what
// is stored may be turned.
int64_t ChunkOf(Rewriter& b, UOp load, const SplitRange& along, bool turned, int64_t ring,
                int64_t bytes) {
  if (ring > 1 && turned) return 1;
  return NeighboursAlong(b, load, along.range, along.tile,
                         bytes / std::max<int64_t>(1, ByteSize(load.dtype())));
}

// `gap`: elements between rows, so that those do not fall onto the same banks.
Panel PanelOf(Rewriter& b, const StagedProduct& plan, size_t operand, bool by_k, int64_t gap,
              int64_t ring, int64_t chunk_bytes) {
  const UOp load = operand == 0 ? plan.product.a : plan.product.b;
  const SplitRange& t = operand == 0 ? plan.m : plan.n;
  const bool copied_by_k = RunsAlongReduced(b, load, t.range, plan.k.range);
  const SplitRange& along = copied_by_k ? plan.k : t;
  Panel panel{.staging = {.dtype = load.dtype(),
                          .value = load,
                          .space = AddressSpace::kLocal,
                          .slot = static_cast<int64_t>(operand),
                          .anew = plan.loops,
                          .ring = ring},
              .by_k = by_k};
  SharedCopy& shared = panel.staging.shared.emplace();
  for (const bool reduced : {!by_k, by_k}) {
    const SplitRange& r = reduced ? plan.k : t;
    if (reduced) panel.staging.ring_axis = panel.staging.axes.size();
    if (reduced == copied_by_k) shared.along = panel.staging.axes.size();
    panel.staging.layout.axes.push_back({.size = r.tile});
    panel.staging.axes.push_back(
        {.range = r.range, .read = r.within, .tile = r.outer, .of = r.size});
  }
  panel.staging.layout.axes.back().gap = gap;
  shared.threads = plan.threads;
  shared.chunk = ChunkOf(b, load, along, copied_by_k != by_k, ring, chunk_bytes);
  return panel;
}

// Matrices of which a row, or where neighbours are not along k a column, lies in one row of local
// memory.
UOp LoadMatrices(Rewriter& b, const Panel& panel, const FragmentPlace& at, int64_t count) {
  Graph& g = *b.graph();
  const UOp zero = g.Index(0);
  const UOp matrix = panel.At(b, at.scalar_t, at.scalar_k);
  const UOp row = panel.by_k ? panel.At(b, at.row, zero) : panel.At(b, zero, at.row);
  // What only the lane decides comes first: that is computed once, before the loop.
  const UOp lanes = b.Make(Op::kAdd, {panel.tile.read, b.Make(Op::kAdd, {matrix, row})});
  const UOp index = b.Make(Op::kAdd, {panel.tile.first, lanes});
  return g.Make(Op::kLoadMatrix, DType::kVoid, {g.Make(Op::kIndex, {panel.tile.memory, index})},
                {count, panel.by_k ? 0 : 1});
}

// A fragment is a vector: the lane's part of the place is added before the element's.
UOp ReadFragment(Rewriter& b, const Panel& panel, const FragmentPlace& at, int64_t elements) {
  if (at.row.valid()) return LoadMatrices(b, panel, at, elements / 2);
  Graph& g = *b.graph();
  UOp index = b.Make(Op::kAdd, {panel.tile.read, panel.tile.first});
  index = b.Make(Op::kAdd, {index, panel.At(b, at.scalar_t, at.scalar_k)});
  index = g.Make(Op::kAdd, {index, panel.At(b, at.vector_t, at.vector_k)});
  return g.Make(Op::kLoad, {g.Make(Op::kIndex, {panel.tile.memory, index})});
}

}  // namespace

void StageProduct(Rewriter& b, const Target& target, const StagedProduct& plan, int64_t* next_id,
                  Replacements* with) {
  Graph& g = *b.graph();
  const Matmul& p = plan.product;
  const Fragments* const mma = plan.fragments;
  const int64_t ring = plan.k.outer.is(Op::kRange) ? plan.ring : 1;
  const int local_bytes = CostsOf(target).group.local_bytes;
  std::vector<Panel> panels;
  for (const size_t i : {0, 1}) {
    const UOp load = i == 0 ? p.a : p.b;
    const bool by_k = mma != nullptr && RunsAlongReduced(b, load, i == 0 ? p.m : p.n, p.k);
    // MFMA reads 8 bytes of 16 rows at once, which with the other gap would meet in pairs.
    const int gap_bytes =
        by_k && target.matrix == MatrixUnit::kMfma ? local_bytes / 2 : local_bytes;
    panels.push_back(
        PanelOf(b, plan, i, by_k, gap_bytes / ByteSize(load.dtype()), ring, local_bytes));
  }
  const Staging tiles[] = {panels[0].staging, panels[1].staging};
  const std::vector<StagedTile> staged = StageTiles(b, tiles, *with, next_id);
  for (const size_t i : {0, 1}) panels[i].tile = staged[i];
  if (mma == nullptr) {
    (*with)[p.a.id()] = {staged[0].Load(b), {}};
    (*with)[p.b.id()] = {staged[1].Load(b), {}};
    return;
  }
  const std::vector<UOp>& ranges = plan.k.with.ranges;
  const std::vector<int64_t> kind(p.reduce.arg().begin(), p.reduce.arg().end());
  std::vector<UOp> fold{
      g.Make(Op::kMma, DType::kVoid,
             {ReadFragment(b, panels[0], mma->a, mma->info().a_size()),
              ReadFragment(b, panels[1], mma->b, mma->info().b_size()), mma->zero},
             {static_cast<int64_t>(mma->kind), 0, 0})};
  fold.insert(fold.end(), ranges.begin(), ranges.end());
  (*with)[p.reduce.id()] = {
      ranges.empty() ? fold[0] : g.Make(Op::kReduce, DType::kVoid, fold, kind), {}};
}

}  // namespace telegrad
