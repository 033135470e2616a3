// Each operand's tile lies in local memory in rows along the tile's range or along what is reduced,
// and the threads copy it in chunks that run along the range that is contiguous in the operand
// (staging.h).
#include "engine/lowering/workgroup_stage.h"

#include <algorithm>
#include <array>

#include "engine/ir/fragment.h"
#include "engine/lowering/panel_order.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/staging.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// How many neighbours a thread copies at once. A copy's elements are neighbours on both sides; what
// is stored may be turned.
int64_t ChunkOf(Rewriter& b, UOp load, const SplitRange& along, bool turned, int64_t ring,
                int64_t bytes) {
  if (ring > 1 && turned) return 1;
  return NeighboursAlong(b, load, along.range, along.tile,
                         bytes / std::max<int64_t>(1, ByteSize(load.dtype())));
}

// Rows that are read at once do not fall onto the same banks: those that are read whole chunks at a
// time are exchanged where the target has that, others have gaps.
void Separate(const RowBytes& bytes, int64_t element, Layout* layout) {
  if (bytes.swizzles) {
    const std::optional<Swizzle> swizzle =
        SwizzleOf(layout->axes.back().size, bytes.chunk / element, bytes.banks);
    if (swizzle) {
      layout->swizzle = *swizzle;
      return;
    }
  }
  layout->axes.back().gap = bytes.gap / element;
}

}  // namespace

UOp Panel::At(Rewriter& b, UOp t, UOp k) const {
  const UOp place[] = {by_k ? t : k, by_k ? k : t};
  return staging.layout.At(b, place);
}

UOp Panel::AtFrom(Rewriter& b, UOp t, UOp k) const {
  if (staging.layout.swizzle.chunk == 0) return b.Make(Op::kAdd, {tile.read, At(b, t, k)});
  const UOp place[] = {b.Make(Op::kAdd, {staging.axes[0].read, by_k ? t : k}),
                       b.Make(Op::kAdd, {staging.axes[1].read, by_k ? k : t})};
  return staging.layout.At(b, place);
}

Panel PanelOf(Rewriter& b, const PanelPlan& plan, bool by_k, const RowBytes& bytes) {
  const UOp load = plan.load;
  const bool copied_by_k = RunsAlongReduced(b, load, plan.t.range, plan.k.range);
  const SplitRange& along = copied_by_k ? plan.k : plan.t;
  Panel panel{.staging = {.dtype = load.dtype(),
                          .value = load,
                          .space = AddressSpace::kLocal,
                          .slot = plan.slot,
                          .anew = plan.loops,
                          .ring = plan.ring},
              .by_k = by_k};
  SharedCopy& shared = panel.staging.shared.emplace();
  for (const bool reduced : {!by_k, by_k}) {
    const SplitRange& r = reduced ? plan.k : plan.t;
    if (reduced == plan.counts_reduced) panel.staging.ring_axis = panel.staging.axes.size();
    if (reduced == copied_by_k) shared.along = panel.staging.axes.size();
    panel.staging.layout.axes.push_back({.size = r.tile});
    panel.staging.axes.push_back(
        {.range = r.range, .read = r.within, .tile = r.outer, .of = r.size});
  }
  Separate(bytes, ByteSize(load.dtype()), &panel.staging.layout);
  shared.threads = plan.threads;
  shared.banks = bytes.banks;
  shared.chunk = ChunkOf(b, load, along, copied_by_k != by_k, plan.ring, bytes.chunk);
  return panel;
}

int64_t BytesAlongReduced(const MmaInfo& mma, size_t operand, DType dtype) {
  if (mma.by_rows) return kMatrixRowBytes;
  const FragmentRow* const row = FindFragment(mma.unit, operand == 0 ? 'a' : 'b');
  const FragmentDigit& lowest = row->elements.all().front();
  return lowest.axis == 'k' && lowest.stride == 1 ? lowest.size * ByteSize(dtype) : ByteSize(dtype);
}

namespace {

// Matrices of which a row, or where neighbours are not along k a column, lies in one row of local
// memory.
UOp LoadMatrices(Rewriter& b, const Panel& panel, const FragmentPlace& at, int64_t count) {
  Graph& g = *b.graph();
  // What only the lane decides comes first: that is computed once, before the loop.
  const auto along = [&](UOp lane, UOp row) {
    return row.valid() ? b.Make(Op::kAdd, {lane, row}) : lane;
  };
  const UOp t = along(at.scalar_t, panel.by_k ? at.row : UOp());
  const UOp k = along(at.scalar_k, panel.by_k ? UOp() : at.row);
  const UOp lanes = panel.AtFrom(b, t, k);
  const UOp index = b.Make(Op::kAdd, {panel.tile.first, lanes});
  return g.Make(Op::kLoadMatrix, DType::kVoid, {g.Make(Op::kIndex, {panel.tile.memory, index})},
                {count, panel.by_k ? 0 : 1});
}

}  // namespace

// A fragment is a vector: the lane's part of the place is added before the element's.
UOp ReadFragment(Rewriter& b, const Panel& panel, const FragmentPlace& at, int64_t elements) {
  if (at.row.valid()) return LoadMatrices(b, panel, at, elements / 2);
  Graph& g = *b.graph();
  UOp index = b.Make(Op::kAdd, {panel.tile.read, panel.tile.first});
  index = b.Make(Op::kAdd, {index, panel.At(b, at.scalar_t, at.scalar_k)});
  index = g.Make(Op::kAdd, {index, panel.At(b, at.vector_t, at.vector_k)});
  return g.Make(Op::kLoad, {g.Make(Op::kIndex, {panel.tile.memory, index})});
}

namespace {

// `swizzles`: rows are exchanged over the banks, else they have gaps.
std::vector<Panel> PanelsOf(Rewriter& b, const StagedProduct& plan, const GroupCosts& costs,
                            bool swizzles, int64_t ring) {
  const Matmul& p = plan.product;
  const Fragments* const mma = plan.fragments;
  std::vector<Panel> panels;
  for (const size_t i : {0, 1}) {
    const UOp load = i == 0 ? p.a : p.b;
    const bool by_k = mma != nullptr && RunsAlongReduced(b, load, i == 0 ? p.m : p.n, p.k);
    RowBytes bytes{.gap = costs.local_bytes,
                   .chunk = costs.local_bytes,
                   .banks = costs.banks,
                   .swizzles = swizzles};
    if (by_k) bytes.gap = std::min(bytes.gap, BytesAlongReduced(mma->info(), i, load.dtype()));
    const PanelPlan of{.load = load,
                       .t = i == 0 ? plan.m : plan.n,
                       .k = plan.k,
                       .threads = plan.threads,
                       .loops = plan.loops,
                       .slot = static_cast<int64_t>(i),
                       .ring = ring};
    panels.push_back(PanelOf(b, of, by_k, bytes));
  }
  return panels;
}

int64_t BytesOf(std::span<const Panel> panels) {
  int64_t bytes = 0;
  for (const Panel& panel : panels) {
    const Staging& s = panel.staging;
    bytes += s.ring * telegrad::BytesOf(s.dtype, s.layout.elements());
  }
  return bytes;
}

}  // namespace

// Exchanged rows take more instructions than a gap: the place of each chunk along a row is computed
// by itself. They are for where more workgroups then have room in a processor's local memory, and
// there are too few to hide each other's waiting.
void StageProduct(Rewriter& b, const Target& target, const StagedProduct& plan, int64_t* next_id,
                  Replacements* with) {
  Graph& g = *b.graph();
  const Matmul& p = plan.product;
  const Fragments* const mma = plan.fragments;
  const int64_t ring = plan.k.outer.is(Op::kRange) ? plan.ring : 1;
  const GroupCosts& costs = CostsOf(target).group;
  std::vector<Panel> panels = PanelsOf(b, plan, costs, /*swizzles=*/false, ring);
  if (mma != nullptr && mma->info().by_rows && costs.swizzles) {
    std::vector<Panel> swizzled = PanelsOf(b, plan, costs, /*swizzles=*/true, ring);
    const int64_t fit = target.local_bytes / BytesOf(panels);
    const bool more = target.local_bytes / BytesOf(swizzled) > fit;
    if (more && static_cast<double>(fit) < costs.busy) panels = std::move(swizzled);
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
