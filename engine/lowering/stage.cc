// The panel of a load is what it reads while the loops that it depends on stand: the fold's ranges
// and the tile. With fresh ranges over the panel,
//
//   LOAD(INDEX(x, i), gate)  ->  LOAD(INDEX(AFTER(BUFFER, END(STORE(INDEX(BUFFER, p'), LOAD(x, i'),
//                                                              panel')), p))
//
// where p numbers the panel in the order of its loops. Rows that lie far apart in x, and often fall
// onto the same few sets of a cache, are neighbours in the copy.
#include "engine/lowering/stage.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr double kMinReuse = 6;                // below, the copy costs more than it saves
constexpr double kFirstLevelBytes = 32 << 10;  // a panel that fits is as near without a copy
constexpr double kFar = 1024;                  // bytes between rows
constexpr double kMaxPanelBytes = 768 << 10;   // of the private memory that a program may have

class Stager {
 public:
  Stager(Rewriter& b, UOp sink, KernelShape shape, const Target& target)
      : b_(b), g_(*b.graph()), sink_(sink), s_(std::move(shape)) {
    limit_ = std::min(kMaxPanelBytes, static_cast<double>(target.cache_bytes) * 0.5);
    const UOp end = sink.src(0);
    for (int i = 1; i < end.num_src(); ++i) order_.push_back(s_.d.IndexOf(end.src(i)));
    room_ = kMaxRanges - static_cast<int>(s_.size.size());
    for (UOp range : s_.d.ranges) next_id_ = std::max(next_id_, range.arg(0) + 1);
  }

  UOp Run() {
    Replacements with;
    for (const Work& work : s_.works) {
      if (!work.is_reduce()) continue;
      for (const MemoryAccess& a : work.accesses) {
        const RangeSet panel = PanelOf(work, a);
        if (panel == 0) continue;
        const UOp staged = Stage(a, panel);
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
  UOp Range(int r) const { return s_.d.ranges[r]; }
  bool IsLoop(int r) const {
    return IsType(Range(r), AxisType::kLoop) || IsType(Range(r), AxisType::kThread);
  }

  // The ranges of the panel, or 0 where it is not worth it.
  RangeSet PanelOf(const Work& work, const MemoryAccess& a) {
    RangeSet panel = 0;
    bool vector = false, far = true, window = false;
    for (RangeSet set = a.ranges | a.gate; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      if (IsLoop(r)) continue;
      panel |= RangeSet{1} << r;
      const bool folded = (work.own >> r & 1) != 0;
      if (IsType(Range(r), AxisType::kVector)) {
        vector = !folded;
        window |= a.stride[r] != 1;
      } else if (folded) {
        far &= a.stride[r] == kIrregular ||
               static_cast<double>(std::abs(a.stride[r]) * a.bytes) >= kFar;
      }
    }
    if (!vector || (panel & work.own) == 0 || !(far || window)) return 0;
    if (std::popcount(panel) > room_) return 0;
    const double bytes = s_.Iterations(panel) * static_cast<double>(a.bytes);
    if (used_ + bytes > limit_ || (!window && bytes < kFirstLevelBytes)) return 0;
    // How often the loops inside of those that it depends on repeat it.
    double reuse = 1;
    bool depends = false;  // on some loop that all stores are in
    for (int r : order_) {
      if (!IsLoop(r)) continue;
      if (((a.ranges | a.gate) >> r & 1) != 0 || IsType(Range(r), AxisType::kThread)) {
        reuse = 1;
        depends = true;
      } else {
        reuse *= static_cast<double>(s_.size[r]);
      }
    }
    // All of its loops are known, and the fold is not one that a loop repeats for nothing.
    for (RangeSet set = (a.ranges | a.gate) & ~panel; set != 0; set &= set - 1) {
      if (std::ranges::find(order_, std::countr_zero(set)) == order_.end()) return 0;
    }
    if (!depends || reuse < kMinReuse) return 0;
    for (int r : order_) {
      if (IsLoop(r) && (work.all >> r & 1) == 0) return 0;
    }
    used_ += bytes;
    room_ -= std::popcount(panel);
    return panel;
  }

  UOp Stage(const MemoryAccess& a, RangeSet panel) {
    // The fold's loops outermost, then the tile, then the lanes, as the fold reads them.
    std::vector<int> ranges;
    for (RangeSet set = panel; set != 0; set &= set - 1) ranges.push_back(std::countr_zero(set));
    std::ranges::stable_sort(ranges, {}, [&](int r) {
      if (IsType(Range(r), AxisType::kReduce)) return 0;
      return IsType(Range(r), AxisType::kUnroll) ? 1 : IsType(Range(r), AxisType::kVector) ? 3 : 2;
    });
    Replacements fresh;
    std::vector<UOp> end{UOp()};
    UOp at = g_.Index(0), at_fresh = g_.Index(0);
    for (int r : ranges) {
      const auto type = static_cast<AxisType>(Range(r).arg(1));
      const bool replicated = type == AxisType::kUpcast || type == AxisType::kVector;
      const UOp copy = g_.Range(next_id_++, replicated ? type : AxisType::kLoop, Range(r).src(0));
      fresh[Range(r).id()] = {copy, {copy}};
      end.push_back(copy);
      const UOp size = g_.Index(s_.size[r]);
      at = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {at, size}), Range(r)});
      at_fresh = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {at_fresh, size}), copy});
    }
    const DType dtype = a.address.dtype();
    const UOp buffer = g_.Make(Op::kBuffer, dtype, {},
                               {static_cast<int64_t>(AddressSpace::kRegister), next_slot_++,
                                static_cast<int64_t>(s_.Iterations(panel))});
    // It is filled within the thread's range.
    UOp begin = buffer;
    for (int r : order_) {
      if (IsType(Range(r), AxisType::kThread)) begin = g_.Make(Op::kAfter, {buffer, Range(r)});
    }
    const UOp value = Substitute(b_, g_.Make(Op::kLoad, {a.address}), fresh);
    end[0] = g_.Make(Op::kStore, {g_.Make(Op::kIndex, {begin, at_fresh}), value});
    const UOp filled = g_.Make(Op::kAfter, {begin, g_.Make(Op::kEnd, DType::kVoid, end)});
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {filled, at})});
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const KernelShape s_;
  std::vector<int> order_;  // the ranges that the first root closes, outermost first
  int64_t next_id_ = 0, next_slot_ = 0;
  double used_ = 0, limit_;
  int room_;  // for ranges
};

}  // namespace

UOp StageLoads(Rewriter& b, UOp sink, const Target& target) {
  if (!sink.src(0).is(Op::kEnd)) return sink;
  std::optional<KernelShape> shape = ReadShape(sink);
  if (!shape) return sink;
  return Stager(b, sink, *std::move(shape), target).Run();
}

}  // namespace telegrad
