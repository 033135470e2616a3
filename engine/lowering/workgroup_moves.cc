// Moves for workgroups. An original range R becomes an expression of its parts:
//
//   ((loop or group * UPCAST + u) * LOCAL + t) * VECTORIZE + lane        in the moves' order
//
// Gates are put in while each range still has a name of its own, as R < size: once the LOCAL parts
// of several ranges are the same threads, what depends on which could no longer be told.
//
// A matrix product's operands are read from panels in local memory. With TENSORCORE, each warp
// computes tiles with matrix instructions:
//
//   REDUCE(add, MUL(f32 of a, f32 of b), k)  ->  REDUCE(add, MMA(fragment of a, of b, 0), k')
//
// and its lanes hold the result as the instruction leaves it, which row and column of a tile are
// which lane's and which element's is substituted for m and n everywhere.
#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/moves.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/lowering/workgroup_stage.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

constexpr size_t kMaxGroupRanges = 3;

AxisType AxisOf(Move::Kind kind) {
  switch (kind) {
    case Move::Kind::kVectorize:
      return AxisType::kVector;
    case Move::Kind::kLocal:
      return AxisType::kLocal;
    case Move::Kind::kUnroll:
      return AxisType::kUnroll;
    default:
      return AxisType::kUpcast;
  }
}

class Splitter {
 public:
  Splitter(Rewriter& b, UOp sink, const std::vector<RangeMove>& moves, const Target& target,
           Dependence d)
      : b_(b), g_(*b.graph()), sink_(sink), moves_(moves), target_(target), d_(std::move(d)) {
    for (UOp range : d_.ranges) next_id_ = std::max(next_id_, range.arg(0) + 1);
    axes_of_.resize(d_.ranges.size(), 0);
  }

  absl::StatusOr<UOp> Run() {
    std::vector<UOp> ranges;
    for (const RangeMove& m : moves_) {
      if (std::ranges::find(ranges, m.range) == ranges.end()) ranges.push_back(m.range);
    }
    TG_RETURN_IF_ERROR(MakeThreads());
    for (UOp range : ranges) {
      for (const RangeMove& m : moves_) {
        if (m.range != range || m.kind != Move::Kind::kGroup) continue;
        grouped_.push_back({range, (SizeOf(range) + TileOf(range) - 1) / TileOf(range)});
      }
    }
    MakeGroups();
    TG_RETURN_IF_ERROR(FindProduct());
    for (UOp range : ranges) Split(range);
    const UOp gated = Gate();
    if (!gated.valid()) return g_.status();
    if (product_) Stage();
    const UOp out = Substitute(b_, gated, with_);
    if (!out.valid()) return g_.status();
    return CloseAll(out);
  }

 private:
  struct Grouped {
    UOp range;
    int64_t count;
    UOp value = {};
  };

  static bool Splits(const RangeMove& m) {
    return m.kind != Move::Kind::kGroup && m.kind != Move::Kind::kStage;
  }

  int64_t TileOf(UOp range) const {
    int64_t tile = 1;
    for (const RangeMove& m : moves_) {
      if (m.range == range && Splits(m)) tile *= m.amount;
    }
    return tile;
  }

  absl::Status FindProduct() {
    const auto has = [&](Move::Kind kind) {
      return std::ranges::any_of(moves_, [&](const RangeMove& m) { return m.kind == kind; });
    };
    if (!has(Move::Kind::kStage)) return absl::OkStatus();
    const std::optional<KernelShape> shape = ReadShape(sink_, target_);
    if (shape) product_ = FindMatmul(*shape);
    if (!product_) return Internal("lowering: a reduction is staged that is not a matrix product");
    if (!has(Move::Kind::kTensorcore)) return absl::OkStatus();
    fragments_ = FragmentsFor(b_, target_.matrix, product_->a.dtype(), next_id_++);
    if (!fragments_) return Internal("lowering: TENSORCORE without a matrix instruction");
    parallel_.push_back(fragments_->lane);
    return absl::OkStatus();
  }

  // The threads of an axis are one range, whatever they share.
  absl::Status MakeThreads() {
    for (const RangeMove& m : moves_) {
      if (m.kind != Move::Kind::kLocal) continue;
      UOp& thread = threads_.at(static_cast<size_t>(m.axis));
      if (!thread.valid()) thread = g_.Range(next_id_++, AxisType::kLocal, g_.Index(m.amount));
      if (SizeOf(thread) != m.amount) {
        return Internal("lowering: ", m.amount, " threads on an axis of ", SizeOf(thread));
      }
      axes_of_[static_cast<size_t>(d_.IndexOf(m.range))] |= 1U << m.axis;
    }
    return absl::OkStatus();
  }

  // Up to three ranges are workgroups; the outermost of more are joined. There is always one, even
  // if of a single workgroup.
  void MakeGroups() {
    std::erase_if(grouped_, [](const Grouped& g) { return g.count == 1; });
    size_t joined = grouped_.size() > kMaxGroupRanges ? grouped_.size() - kMaxGroupRanges + 1 : 0;
    if (joined > 0) {
      int64_t all = 1;
      for (size_t i = 0; i < joined; ++i) all *= grouped_[i].count;
      const UOp group = g_.Range(next_id_++, AxisType::kGroup, g_.Index(all));
      parallel_.push_back(group);
      int64_t inner = 1;
      for (size_t i = joined; i-- > 0;) {
        UOp value = b_.Make(Op::kFloorDiv, {group, g_.Index(inner)});
        if (i > 0) value = b_.Make(Op::kFloorMod, {value, g_.Index(grouped_[i].count)});
        grouped_[i].value = value;
        inner *= grouped_[i].count;
      }
    }
    for (size_t i = joined; i < grouped_.size(); ++i) {
      grouped_[i].value = g_.Range(next_id_++, AxisType::kGroup, g_.Index(grouped_[i].count));
      parallel_.push_back(grouped_[i].value);
    }
    if (parallel_.empty()) {
      parallel_.push_back(g_.Range(next_id_++, AxisType::kGroup, g_.Index(1)));
    }
    for (size_t axis = threads_.size(); axis-- > 0;) {
      if (threads_[axis].valid()) parallel_.push_back(threads_[axis]);
    }
  }

  void Split(UOp range) {
    const int64_t size = SizeOf(range), tile = TileOf(range);
    const int64_t count = (size + tile - 1) / tile;
    const auto type = static_cast<AxisType>(range.arg(1));
    Replacement r;
    r.value = g_.Index(0);
    const auto grouped = std::ranges::find(grouped_, range, &Grouped::range);
    if (grouped != grouped_.end()) {
      r.value = grouped->value;
    } else if (count > 1) {
      r.value = g_.Range(next_id_++, type, g_.Index(count));
      r.ranges.push_back(r.value);
    }
    outer_[range.id()] = r.value;
    UOp whole = r.value;  // without the lanes, which lie all inside or all outside
    int64_t lanes = 1;
    UOp inner = g_.Index(0);  // `value` within the tile
    for (const RangeMove& m : moves_) {
      if (m.range != range || !Splits(m)) continue;
      if (m.kind == Move::Kind::kTensorcore) {
        const auto at = [&](UOp x) { return b_.Make(Op::kMul, {x, g_.Index(m.amount)}); };
        inner = at(inner);
        r.value = at(r.value);
        const bool row = range == product_->m, column = range == product_->n;
        if (row) r.value = b_.Make(Op::kAdd, {r.value, fragments_->c.row});
        if (column) r.value = b_.Make(Op::kAdd, {r.value, fragments_->c.column});
        whole = r.value;
        continue;
      }
      const bool local = m.kind == Move::Kind::kLocal;
      const UOp part = local ? threads_[static_cast<size_t>(m.axis)]
                             : g_.Range(next_id_++, AxisOf(m.kind), g_.Index(m.amount));
      const auto add = [&](UOp x) {
        return b_.Make(Op::kAdd, {b_.Make(Op::kMul, {x, g_.Index(m.amount)}), part});
      };
      r.value = add(r.value);
      inner = add(inner);
      r.ranges.push_back(part);
      if (m.kind == Move::Kind::kVectorize && size % m.amount == 0) {
        lanes = m.amount;
      } else {
        whole = r.value;
      }
    }
    inner_[range.id()] = inner;
    if (count * tile != size) {
      const UOp inside = g_.Make(Op::kCmpLt, {range, g_.Index(size)});
      inside_[range.id()] = inside;
      with_[inside.id()] = {b_.Make(Op::kCmpLt, {whole, g_.Index(size / lanes)}), {}};
    }
    with_[range.id()] = std::move(r);
  }

  // R < size for each padded range of `set`; invalid if there is none.
  UOp Inside(RangeSet set) {
    UOp gate;
    for (size_t i = 0; i < d_.ranges.size(); ++i) {
      const auto it = inside_.find(d_.ranges[i].id());
      if ((set >> i & 1) == 0 || it == inside_.end()) continue;
      gate = gate.valid() ? g_.Make(Op::kAnd, {gate, it->second}) : it->second;
    }
    return gate;
  }

  UOp WithGate(UOp address, UOp gate) {
    if (!gate.valid()) return address;
    if (address.num_src() == 3) gate = g_.Make(Op::kAnd, {address.src(2), gate});
    return g_.Make(Op::kIndex, {address.src(0), address.src(1), gate});
  }

  // The first thread of each axis that a store in `set` does not depend on.
  UOp FirstThread(RangeSet set) {
    unsigned axes = 0;
    for (size_t i = 0; i < axes_of_.size(); ++i) axes |= (set >> i & 1) != 0 ? axes_of_[i] : 0;
    UOp gate;
    for (size_t axis = 0; axis < threads_.size(); ++axis) {
      if (!threads_[axis].valid() || SizeOf(threads_[axis]) == 1 || (axes >> axis & 1) != 0) {
        continue;
      }
      const UOp first = g_.Make(Op::kCmpLt, {threads_[axis], g_.Index(1)});
      gate = gate.valid() ? g_.Make(Op::kAnd, {gate, first}) : first;
    }
    return gate;
  }

  UOp Gate() {
    NodeMap<uint32_t> made(g_);
    std::vector<UOp> src;
    for (uint32_t id : PostOrder(sink_)) {
      const UOp u = g_.at(id);
      src.clear();
      for (uint32_t s : u.src_ids()) src.push_back(g_.at(made[s]));
      if (product_ && (u == product_->a || u == product_->b || u == product_->reduce)) {
        made[id] = id;  // its panels are gated
        continue;
      }
      if (u.is(Op::kLoad)) {
        src[0] = WithGate(src[0], Inside(d_.of[u.src(0).id()]));
      } else if (u.is(Op::kStore)) {
        src[0] = WithGate(src[0], Inside(d_.of[id]));
        src[0] = WithGate(src[0], FirstThread(d_.of[id]));
      } else if (u.is(Op::kReduce)) {
        RangeSet own = 0;
        for (int i = 1; i < u.num_src(); ++i) own |= RangeSet{1} << d_.IndexOf(u.src(i));
        if (const UOp inside = Inside(own); inside.valid()) {
          const auto kind = static_cast<ReduceKind>(u.arg(0));
          src[0] = g_.Make(Op::kWhere, {inside, src[0],
                                        g_.ConstWord(u.dtype(), ReduceIdentity(kind, u.dtype()))});
        }
      }
      made[id] = id;
      if (std::ranges::equal(src, u.src_ids(), {}, &UOp::id)) continue;
      const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
      const UOp copy = g_.Make(u.op(), u.dtype(), src, arg);
      if (!copy.valid()) return copy;
      made[id] = copy.id();
    }
    return g_.at(made[sink_.id()]);
  }

  // The product reads its operands from panels, which each iteration of the reduction's loop fills.
  void Stage() {
    const Matmul& p = *product_;
    const auto side = [&](UOp range) {
      const int64_t tile = TileOf(range);
      return PanelSide{range, b_.Make(Op::kMul, {outer_.at(range.id()), g_.Index(tile)}), tile};
    };
    const UOp outer = outer_.at(p.k.id());
    const UOp loop = outer.is(Op::kRange) ? outer : UOp();
    std::vector<UOp> threads;
    for (UOp range : parallel_) {
      if (IsThreads(range)) threads.push_back(range);
    }
    const bool mma = fragments_.has_value();
    const int local_bytes = CostsOf(target_).group.local_bytes;
    std::array<Panel, 2> panels;
    for (size_t i = 0; i < panels.size(); ++i) {
      const UOp load = i == 0 ? p.a : p.b;
      const bool by_k = mma && StrideOf(load.src(0).src(1), p.k) == 1;
      // MFMA reads 8 bytes of 16 rows at once, which with the other gap would meet in pairs.
      const int pad_bytes =
          by_k && target_.matrix == MatrixUnit::kMfma ? local_bytes / 2 : local_bytes;
      const int64_t pad = pad_bytes / ByteSize(load.dtype());
      const PanelPlan plan{load, side(i == 0 ? p.m : p.n), side(p.k), by_k,
                           pad,  static_cast<int64_t>(i)};
      panels[i] = MakePanel(b_, plan, threads, loop, with_, local_bytes, &next_id_);
    }
    const auto staged = [&](size_t i, const FragmentPlace* at) {
      const UOp filled = g_.Make(Op::kAfter, {panels[i].buffer, panels[0].fill, panels[1].fill});
      UOp index = panels[i].At(b_, inner_.at((i == 0 ? p.m : p.n).id()), inner_.at(p.k.id()));
      if (at != nullptr)
        index = b_.Make(Op::kAdd, {index, panels[i].At(b_, at->scalar_t, at->scalar_k)});
      if (at != nullptr) {
        index = g_.Make(Op::kAdd, {index, panels[i].At(b_, at->vector_t, at->vector_k)});
      }
      return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {filled, index})});
    };
    if (!mma) {
      with_[p.a.id()] = {staged(0, nullptr), {}};
      with_[p.b.id()] = {staged(1, nullptr), {}};
      return;
    }
    const std::vector<UOp> ranges = with_.at(p.k.id()).ranges;
    const std::vector<int64_t> kind(p.reduce.arg().begin(), p.reduce.arg().end());
    std::vector<UOp> fold{
        g_.Make(Op::kMma, DType::kVoid,
                {staged(0, &fragments_->a), staged(1, &fragments_->b), fragments_->zero},
                {static_cast<int64_t>(fragments_->kind), 0, 0})};
    fold.insert(fold.end(), ranges.begin(), ranges.end());
    with_[p.reduce.id()] = {
        ranges.empty() ? fold[0] : g_.Make(Op::kReduce, DType::kVoid, fold, kind), {}};
  }

  // Every root is END(effect, parallel ranges..., its loops...).
  absl::StatusOr<UOp> CloseAll(UOp sink) {
    std::vector<UOp> roots;
    for (int i = 0; i < sink.num_src(); ++i) {
      std::vector<UOp> loops;
      UOp body = sink.src(i);
      for (; body.is(Op::kEnd); body = body.src(0)) {
        for (int j = 1; j < body.num_src(); ++j) {
          if (!IsParallel(body.src(j))) loops.push_back(body.src(j));
        }
      }
      std::vector<UOp> src{body};
      src.insert(src.end(), parallel_.begin(), parallel_.end());
      src.insert(src.end(), loops.begin(), loops.end());
      roots.push_back(g_.Make(Op::kEnd, DType::kVoid, src));
    }
    const UOp out = g_.Make(Op::kSink, DType::kVoid, roots);
    if (!out.valid()) return g_.status();
    return out;
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const std::vector<RangeMove>& moves_;
  const Target& target_;
  const Dependence d_;
  int64_t next_id_ = 0;
  std::vector<unsigned> axes_of_;  // by range: the thread axes that it has parts on, as bits
  std::array<UOp, kMaxThreadAxes> threads_;
  std::vector<Grouped> grouped_;
  std::vector<UOp> parallel_;                         // outermost first
  absl::flat_hash_map<uint32_t, UOp> inside_;         // of a range that is rounded up
  absl::flat_hash_map<uint32_t, UOp> outer_, inner_;  // of a range: its loop or group, and the rest
  std::optional<Matmul> product_;
  std::optional<Fragments> fragments_;  // with TENSORCORE
  Replacements with_;
};

}  // namespace

absl::StatusOr<UOp> ApplyWorkgroupMoves(Rewriter& b, UOp sink, const std::vector<RangeMove>& moves,
                                        const Target& target) {
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  return Splitter(b, sink, moves, target, *std::move(d)).Run();
}

}  // namespace telegrad
