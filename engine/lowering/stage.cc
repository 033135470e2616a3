// The panel of a load is what it reads while the loops that it depends on stand: the reduction's
// ranges and the tile. It is staged (staging.h) in the order in which the tile reads it. Rows that
// lie far apart in what is copied, and often fall onto the same few sets of a cache, are neighbours
// in the copy.
//
// The copy of a weight has the panels of all iterations of the loops, one after another as they are
// read, and is an argument that a kernel of its own fills:
//
//   LOAD(INDEX(x, i))  ->  LOAD(INDEX(PARAM, p))      STORE(INDEX(PARAM, p'), LOAD(INDEX(x, i')))
#include "engine/lowering/stage.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <ranges>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/staging.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

class Stager {
 public:
  Stager(Rewriter& b, Piece* piece, KernelShape shape, const Target& target)
      : b_(b),
        g_(*b.graph()),
        piece_(*piece),
        sink_(piece->root),
        s_(std::move(shape)),
        target_(target),
        costs_(CostsOf(target).thread) {
    limit_ = PanelBytes(target);
    FindOrders();
    room_ = kMaxRanges - static_cast<int>(s_.size.size());
    for (UOp range : s_.d.ranges) next_id_ = std::max(next_id_, range.range_id() + 1);
    for (uint32_t id : PostOrder(sink_)) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kBuffer)) continue;
      next_slot_ = std::max(next_slot_, u.buffer_slot() + 1);
      used_ += static_cast<double>(BytesOf(u.dtype(), u.elements()));
    }
    nests_ = s_.whole != 0 && KeepsValues();
    if (nests_) used_ = 0;  // what the kernel keeps between its nests is no copy
  }

  UOp Run() {
    Replacements with;
    for (const Work& work : s_.works) {
      if (!work.is_reduce()) continue;
      order_ = orders_[work.root.id()];
      for (const MemoryAccess& a : work.accesses) {
        UOp staged;
        if (IsPacked(work, a)) {
          staged = Pack(a);
        } else if (const RangeSet panel = PanelOf(work, a); panel != 0) {
          staged = Stage(a, panel);
        } else {
          continue;
        }
        if (!staged.valid()) return {};
        for (uint32_t id : PostOrder(sink_)) {
          const UOp u = g_.at(id);
          if (u.is(Op::kLoad) && u.src(0) == a.address) with[id] = {staged, {}};
        }
      }
    }
    return with.empty() ? sink_ : Substitute(b_, sink_, with);
  }

 private:
  // The ranges that a reduction stands in: those that the nest which stores what it is used for
  // depends on, in the order of the first root's, then loops around nests, and those that this nest
  // closes.
  void FindOrders() {
    std::vector<int> outer;
    const UOp root = sink_.src(0);
    for (int i = 1; i < root.num_src(); ++i) outer.push_back(s_.d.IndexOf(root.src(i)));
    const std::vector<uint32_t> nodes = PostOrder(sink_);
    for (uint32_t id : std::views::reverse(nodes)) {  // the END of an outer loop comes later
      const UOp end = g_.at(id);
      for (int i = 1; end.is(Op::kEnd) && i < end.num_src(); ++i) {
        const int r = s_.d.IndexOf(end.src(i));
        if (!Has(s_.around_nests, r) || std::ranges::find(outer, r) != outer.end()) continue;
        outer.push_back(r);
        around_ |= Bit(r);
      }
    }
    for (uint32_t id : nodes) {
      const UOp end = g_.at(id);
      if (!end.is(Op::kEnd)) continue;
      std::vector<int> order;
      for (int r : outer) {
        if (Has(s_.d.of[id], r)) order.push_back(r);
      }
      for (int i = 1; i < end.num_src(); ++i) order.push_back(s_.d.IndexOf(end.src(i)));
      std::vector<uint32_t> stack{end.src(0).id()};
      std::vector<bool> seen(id, false);
      while (!stack.empty()) {
        const UOp u = g_.at(stack.back());
        stack.pop_back();
        if (seen[u.id()] || u.is(Op::kEnd)) continue;
        seen[u.id()] = true;
        if (u.is(Op::kReduce)) orders_.try_emplace(u.id(), order);
        for (uint32_t s : u.src_ids()) stack.push_back(s);
      }
    }
  }

  // Whether private memory has other things than the accumulators of a reduction in blocks, which
  // are added to.
  bool KeepsValues() const {
    absl::flat_hash_set<uint32_t> kept, accumulators;
    for (const Work& work : s_.works) {
      if (work.is_reduce()) continue;
      const UOp memory = Memory(work.root.src(0)), value = work.root.src(1);
      if (!memory.is(Op::kBuffer)) continue;
      kept.insert(memory.id());
      for (int i = 0; i < value.num_src(); ++i) {
        const UOp from = value.src(i);
        if (from.is(Op::kLoad) && Memory(from.src(0)) == memory) accumulators.insert(memory.id());
      }
    }
    return kept.size() != accumulators.size();
  }

  UOp Range(int r) const { return s_.d.ranges[r]; }
  bool IsLoop(int r) const {
    return IsType(Range(r), AxisType::kLoop) || IsType(Range(r), AxisType::kThread);
  }

  // What a copy of it would be: 0 ranges where whole vectors of neighbours are loaded already, or
  // the copy would be as near as what it copies.
  struct Panel {
    RangeSet ranges = 0;
    bool window = false;  // lanes lie apart
    bool masked = false;  // lanes have gates of their own
    bool near = false;    // neither, and rows that are not far apart

    bool whole() const { return !window && !masked; }
  };
  Panel FindPanel(const Work& work, const MemoryAccess& a) const {
    Panel panel;
    bool vector = false, far = true;
    for (RangeSet set = a.ranges | a.gate; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (IsLoop(r)) continue;
      panel.ranges |= Bit(r);
      const bool folded = Has(work.own, r);
      if (IsType(Range(r), AxisType::kVector)) {
        vector = !folded;
        panel.window |= a.stride[r] != 1;
        panel.masked |= Has(a.gate, r) && !nests_;
      } else if (folded) {
        far &= a.stride[r] == kIrregular ||
               static_cast<double>(std::abs(a.stride[r]) * a.bytes) >= costs_.near_rows;
      }
    }
    if (!vector || (panel.ranges & work.own) == 0) return {};
    panel.near = panel.whole() && !far;
    // What is computed into a copy in any case has the order that is read best.
    if (IsDerived(a)) return panel;
    if (panel.whole() && TouchedBytes(work, a, panel.ranges) < costs_.first_level_bytes) return {};
    return panel;
  }

  // Bytes of the lines that a panel of whole vectors lies in; 0 where its rows are neighbours, and
  // more than any cache has where so many rows lie so far apart that the first-level cache keeps
  // few of their lines, because these fall onto the same sets.
  double TouchedBytes(const Work& work, const MemoryAccess& a, RangeSet panel) const {
    const double row = CopyBytes(a, panel & ~work.own);
    double lines = std::ceil(row / costs_.line_bytes);
    bool aligned = true;
    for (RangeSet set = panel & work.own; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (a.stride[r] == kIrregular) continue;
      const auto step = static_cast<double>(std::abs(a.stride[r]) * a.bytes);
      if (step < 2 * row) return 0;
      if (s_.size[r] > LinesHeld(static_cast<int64_t>(step), target_)) return HUGE_VAL;
      aligned &= std::fmod(step, costs_.line_bytes) == 0;
    }
    if (!aligned) ++lines;
    return s_.Iterations(panel & work.own) * lines * costs_.line_bytes;
  }
  double CopyBytes(const MemoryAccess& a, RangeSet ranges) const {
    return s_.Iterations(ranges) * static_cast<double>(a.bytes);
  }

  // Whether it is read from a copy of the weight that is kept, however large that is: a run packs
  // again only where there is no memory to keep it.
  bool IsPacked(const Work& work, const MemoryAccess& a) const {
    return s_.IsPackable(work, a) && (FindPanel(work, a).ranges != 0 || PacksRows(work, a)) &&
           !IsDerivedForOthers(a);
  }

  // Whether it reads a derived weight: see derive.h.
  bool IsDerived(const MemoryAccess& a) const {
    const UOp memory = a.address.src(0);
    return memory.is(Op::kParam) &&
           std::ranges::find(piece_.packings, static_cast<int32_t>(memory.slot()),
                             &Program::Packing::copy) != piece_.packings.end();
  }

  // Whether it is a derived weight that other accesses read, too: these have one order.
  bool IsDerivedForOthers(const MemoryAccess& a) const {
    if (!IsDerived(a)) return false;
    for (const Work& work : s_.works) {
      for (const MemoryAccess& other : work.accesses) {
        if (other.address != a.address && other.address.src(0) == a.address.src(0)) return true;
      }
    }
    return false;
  }

  // Whether all lanes of a tile read one element of each of several rows, which are neighbours in a
  // copy: one stream that goes on from tile to tile, instead of as many as there are rows. One
  // operand of a product is packed: of two that no kernel writes, the other is most likely no
  // weight but an input, which each run would have to pack again.
  bool PacksRows(const Work& work, const MemoryAccess& a) const {
    bool rows = false;
    for (RangeSet set = a.ranges; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (IsType(Range(r), AxisType::kVector)) return false;
      rows |= IsType(Range(r), AxisType::kUpcast) && s_.size[r] > 1 && a.stride[r] != 1;
    }
    return rows && std::ranges::none_of(work.accesses, [&](const MemoryAccess& other) {
             return &other != &a && s_.IsPackable(work, other);
           });
  }

  // The ranges of the panel, or 0 where it is not worth it.
  RangeSet PanelOf(const Work& work, const MemoryAccess& a) {
    const Panel found = FindPanel(work, a);
    RangeSet panel = found.ranges;
    // Of rows that are near, which processors load ahead, a copy has to be read more often.
    const double least = found.near ? 2 * costs_.copy_reads : costs_.copy_reads;
    if (panel == 0 || std::popcount(panel) + 1 > room_) return 0;
    double bytes = CopyBytes(a, panel);
    if (used_ + bytes > limit_) return 0;
    // How often the loops inside of those that it depends on repeat it.
    double reuse = 1;
    bool depends = false;  // on some loop that all stores are in
    for (int r : order_) {
      if (!IsLoop(r) && !(Has(around_, r) && !Has(a.ranges | a.gate, r))) continue;
      if (((a.ranges | a.gate) >> r & 1) != 0 || IsType(Range(r), AxisType::kThread)) {
        reuse = 1;
        depends = true;
      } else {
        reuse *= static_cast<double>(s_.size[r]);
      }
    }
    if (reuse < costs_.copy_reads && !found.whole()) {
      const RangeSet wider = Widened(a, panel, &reuse);
      bytes = CopyBytes(a, wider);
      if (reuse < costs_.copy_reads || used_ + bytes > limit_) return 0;
      if (std::popcount(wider) + 1 > room_) return 0;
      panel = wider;
      depends = true;
    }
    // All of its loops are known, and the reduction is not one that a loop repeats for nothing.
    for (RangeSet set = (a.ranges | a.gate) & ~panel; set != 0; set &= set - 1) {
      if (std::ranges::find(order_, std::countr_zero(set)) == order_.end()) return 0;
    }
    if (!depends || reuse < least) return 0;
    for (int r : order_) {
      if (IsLoop(r) && (work.all >> r & 1) == 0) return 0;
    }
    used_ += bytes;
    room_ -= std::popcount(panel) + 1;
    return panel;
  }

  // The panel with those loops that `a` depends on, from the innermost outwards, until the loops
  // that it does not depend on, of those that are then inside, repeat it often enough.
  RangeSet Widened(const MemoryAccess& a, RangeSet panel, double* reuse) const {
    double times = 1;
    for (size_t i = order_.size(); i-- > 0;) {
      const int r = order_[i];
      if (!IsLoop(r)) continue;
      const bool depends = Has(a.ranges | a.gate, r);
      if (IsType(Range(r), AxisType::kThread) || (depends && times >= costs_.copy_reads)) break;
      if (depends) {
        panel |= Bit(r);
      } else {
        times *= static_cast<double>(s_.size[r]);
      }
    }
    *reuse = times;
    return panel;
  }

  // How many iterations of `r` are copied together: as many as there are lanes, where these lie far
  // apart and iterations of `r` are neighbours, so that all of them are loaded as whole vectors.
  int64_t NeighboursOf(const MemoryAccess& a, int r, const std::vector<int>& panel) const {
    if (a.gate != 0 || a.stride[r] != 1 || IsType(Range(r), AxisType::kVector)) return 1;
    for (int lanes : panel) {
      if (!IsType(Range(lanes), AxisType::kVector) || a.stride[lanes] <= 1) continue;
      if (s_.size[r] % s_.size[lanes] == 0) return s_.size[lanes];
    }
    return 1;
  }

  // The loops of the copy along `r`.
  std::vector<CopyLoop> CopyLoops(int r, int64_t together) const {
    const auto type = Range(r).axis_type();
    if (together == 1) {
      // A window's masks are found once, for all iterations of the loops around it.
      if (type == AxisType::kUnroll) return {{AxisType::kUpcast, s_.size[r]}};
      const bool replicated = type == AxisType::kUpcast || type == AxisType::kVector;
      return {{replicated ? type : AxisType::kLoop, s_.size[r]}};
    }
    if (together == s_.size[r]) return {{AxisType::kUpcast, together}};
    return {{AxisType::kLoop, s_.size[r] / together}, {AxisType::kUpcast, together}};
  }

  // The loops around the reduction outermost, then its own, then the tile, then the lanes.
  std::vector<int> InOrder(RangeSet set) const {
    std::vector<int> ranges;
    for (; set != 0; set &= set - 1) ranges.push_back(std::countr_zero(set));
    std::ranges::stable_sort(ranges, {}, [&](int r) {
      if (IsLoop(r)) return -1;
      if (IsType(Range(r), AxisType::kReduce)) return 0;
      return IsType(Range(r), AxisType::kUnroll) ? 1 : IsType(Range(r), AxisType::kVector) ? 3 : 2;
    });
    return ranges;
  }

  // The element `index` of what the kernel of a packing computes: see derive.h.
  UOp DerivedValue(UOp packing, UOp index) {
    const UOp nest = CopyLive(packing, &g_).src(0);
    Replacements digits;
    UOp rest = index;
    for (int i = nest.num_src() - 1; i > 0; --i) {
      const UOp range = nest.src(i), size = g_.Index(SizeOf(range));
      const UOp digit = i == 1 ? rest : b_.Make(Op::kFloorMod, {rest, size});
      digits[range.id()] = {digit, {}};
      rest = b_.Make(Op::kFloorDiv, {rest, size});
    }
    return Substitute(b_, nest.src(0).src(1), digits);
  }

  // A copy of all iterations of these ranges, in their order: neighbours along the last one.
  Staging Packed(UOp value, std::span<const int> ranges) const {
    Staging s{.dtype = value.dtype(), .value = value};
    for (int r : ranges) {
      s.layout.axes.push_back({.size = s_.size[r]});
      s.axes.push_back(
          {.range = Range(r), .read = Range(r), .loops = {{AxisType::kLoop, s_.size[r]}}});
    }
    return s;
  }

  // The load from a copy that is an argument, and its kernel.
  UOp Pack(const MemoryAccess& a) {
    std::vector<int> ranges = InOrder(a.ranges);
    const auto loops = std::ranges::find_if(ranges, [&](int r) { return !IsLoop(r); });
    std::ranges::stable_sort(ranges.begin(), loops, {},
                             [&](int r) { return std::ranges::find(order_, r) - order_.begin(); });
    const UOp source = a.address.src(0), index = a.address.src(1);
    const DType dtype = source.dtype();
    const auto derived = std::ranges::find(piece_.packings, static_cast<int32_t>(source.slot()),
                                           &Program::Packing::copy);
    const UOp from = g_.Make(Op::kIndex, {g_.Param(1, dtype, source.shape()), index});
    const Staging s = Packed(g_.Make(Op::kLoad, {from}), ranges);
    const int64_t elements = s.layout.elements();
    int64_t own_id = 0;  // the copy is a kernel of its own
    auto [nest, read] = FillTile(b_, s, g_.Param(0, dtype, Shape{elements}), {}, &own_id);
    if (!nest.valid()) return nest;
    if (derived != piece_.packings.end()) {  // computed where it would be loaded
      const UOp load = nest.src(0).src(1);
      const UOp value = DerivedValue(derived->kernel.root(), load.src(0).src(1));
      nest = Substitute(b_, nest, {{load.id(), {value, {}}}});
    }
    const UOp sink = g_.Make(Op::kSink, {nest});
    if (!sink.valid()) return sink;
    auto slot = static_cast<int32_t>(piece_.arguments.size());
    if (derived == piece_.packings.end()) {
      piece_.packings.push_back({slot, static_cast<int32_t>(source.slot()), Freeze(sink)});
      piece_.arguments.push_back({.dtype = dtype, .elements = elements});
    } else {  // the only one that reads it
      slot = derived->copy;
      derived->kernel = Freeze(sink);
      piece_.arguments[static_cast<size_t>(slot)].elements = elements;
    }
    return g_.Make(Op::kLoad,
                   {g_.Make(Op::kIndex, {g_.Param(slot, dtype, Shape{elements}), read})});
  }

  // The load from a copy in private memory.
  UOp Stage(const MemoryAccess& a, RangeSet panel) {
    const std::vector<int> ranges = InOrder(panel);  // as they are read
    Staging s = Packed(g_.Make(Op::kLoad, {a.address}), ranges);
    s.slot = next_slot_++;
    for (size_t i = 0; i < ranges.size(); ++i) {
      s.axes[i].loops = CopyLoops(ranges[i], NeighboursOf(a, ranges[i], ranges));
    }
    // It is filled within the ranges that threads share.
    for (int r : order_) {
      if (IsType(Range(r), AxisType::kThread)) s.own.push_back(Range(r));
    }
    return StageTiles(b_, {&s, 1}, {}, &next_id_).front().Load(b_);
  }

  Rewriter& b_;
  Graph& g_;
  Piece& piece_;
  const UOp sink_;
  const KernelShape s_;
  const Target& target_;
  const ThreadCosts& costs_;
  absl::flat_hash_map<uint32_t, std::vector<int>> orders_;  // by REDUCE, outermost first
  std::vector<int> order_;                                  // of the REDUCE that is looked at
  RangeSet around_ = 0;                                     // loops around nests, but the outermost
  int64_t next_id_ = 0, next_slot_ = 0;
  double used_ = 0, limit_;
  bool nests_ = false;  // values are kept between nests in private memory
  int room_;            // for ranges
};

}  // namespace

double PanelBytes(const Target& target) {
  return std::min(CostsOf(target).thread.panel_bytes,
                  static_cast<double>(target.cache_bytes) * 0.5);
}

absl::StatusOr<UOp> StageLoads(Rewriter& b, Piece* piece, const Target& target) {
  if (PanelBytes(target) == 0 || !piece->root.src(0).is(Op::kEnd)) return piece->root;
  std::optional<KernelShape> shape = ReadShape(piece->root, target, piece->arguments);
  if (!shape) return piece->root;
  const UOp staged = Stager(b, piece, *std::move(shape), target).Run();
  if (!staged.valid()) return b.graph()->status();
  return staged;
}

}  // namespace telegrad
