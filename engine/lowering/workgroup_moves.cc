// Moves for workgroups. An original range R becomes an expression of its parts:
//
//   ((loop or group * UPCAST + u) * LOCAL + t) * VECTORIZE + lane        in the moves' order
//
// Gates are put in while each range still has a name of its own, as R < size: once the LOCAL parts
// of several ranges are the same threads, what depends on which could no longer be told.
#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/moves.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup.h"

namespace telegrad {
namespace {

constexpr size_t kMaxGroupRanges = 3;

int64_t SizeOf(UOp range) { return range.src(0).const_word(); }

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
  Splitter(Rewriter& b, UOp sink, const std::vector<Move>& moves, Dependence d)
      : b_(b), g_(*b.graph()), sink_(sink), moves_(moves), d_(std::move(d)) {
    for (UOp range : d_.ranges) next_id_ = std::max(next_id_, range.arg(0) + 1);
    axes_of_.resize(d_.ranges.size(), 0);
  }

  absl::StatusOr<UOp> Run() {
    std::vector<UOp> ranges;
    for (const Move& m : moves_) {
      if (std::ranges::find(ranges, m.range) == ranges.end()) ranges.push_back(m.range);
    }
    TG_RETURN_IF_ERROR(MakeThreads());
    for (UOp range : ranges) {
      for (const Move& m : moves_) {
        if (m.range != range || m.kind != Move::Kind::kGroup) continue;
        grouped_.push_back({range, (SizeOf(range) + TileOf(range) - 1) / TileOf(range)});
      }
    }
    MakeGroups();
    for (UOp range : ranges) Split(range);
    const UOp gated = Gate();
    if (!gated.valid()) return g_.status();
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

  int64_t TileOf(UOp range) const {
    int64_t tile = 1;
    for (const Move& m : moves_) {
      if (m.range == range && m.kind != Move::Kind::kGroup) tile *= m.amount;
    }
    return tile;
  }

  // The threads of an axis are one range, whatever they share.
  absl::Status MakeThreads() {
    for (const Move& m : moves_) {
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
    UOp whole = r.value;  // without the lanes, which lie all inside or all outside
    int64_t lanes = 1;
    for (const Move& m : moves_) {
      if (m.range != range || m.kind == Move::Kind::kGroup) continue;
      const bool local = m.kind == Move::Kind::kLocal;
      const UOp part = local ? threads_[static_cast<size_t>(m.axis)]
                             : g_.Range(next_id_++, AxisOf(m.kind), g_.Index(m.amount));
      r.value = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {r.value, g_.Index(m.amount)}), part});
      r.ranges.push_back(part);
      if (m.kind == Move::Kind::kVectorize && size % m.amount == 0) {
        lanes = m.amount;
      } else {
        whole = r.value;
      }
    }
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
  const std::vector<Move>& moves_;
  const Dependence d_;
  int64_t next_id_ = 0;
  std::vector<unsigned> axes_of_;  // by range: the thread axes that it has parts on, as bits
  std::array<UOp, kMaxThreadAxes> threads_;
  std::vector<Grouped> grouped_;
  std::vector<UOp> parallel_;                  // outermost first
  absl::flat_hash_map<uint32_t, UOp> inside_;  // of a range that is rounded up
  Replacements with_;
};

}  // namespace

absl::StatusOr<UOp> ApplyWorkgroupMoves(Rewriter& b, UOp sink, const std::vector<Move>& moves) {
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  return Splitter(b, sink, moves, *std::move(d)).Run();
}

}  // namespace telegrad
