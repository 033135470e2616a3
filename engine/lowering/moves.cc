#include "engine/lowering/moves.h"

#include <algorithm>
#include <optional>

#include "engine/lowering/affine.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

int64_t SizeOf(UOp range) { return range.src(0).const_word(); }

// Ranges that something other than an address depends on: a gate, or a value made from an index.
uint64_t UsedOutsideAddresses(UOp sink, const Dependence& d) {
  const Graph& graph = *sink.graph();
  std::vector<bool> seen(sink.id() + 1, false);
  std::vector<uint32_t> stack{sink.id()};
  uint64_t used = 0;
  while (!stack.empty()) {
    const UOp u = graph.at(stack.back());
    stack.pop_back();
    if (seen[u.id()]) continue;
    seen[u.id()] = true;
    for (int i = 0; i < u.num_src(); ++i) {
      const UOp s = u.src(i);
      const bool closes = i > 0 && (u.is(Op::kEnd) || u.is(Op::kReduce));
      if (u.is(Op::kIndex) && i == 1) continue;
      if (s.is(Op::kRange)) {
        if (!closes) used |= uint64_t{1} << d.IndexOf(s);
        continue;
      }
      stack.push_back(s.id());
    }
  }
  return used;
}

std::vector<UOp> Addresses(UOp sink) {
  std::vector<UOp> out;
  for (uint32_t id : PostOrder(sink)) {
    if (sink.graph()->op(id) == Op::kIndex) out.push_back(sink.graph()->at(id));
  }
  return out;
}

// Whether every access steps over `outer` as if it continued `inner`.
bool Continues(const std::vector<UOp>& addresses, UOp outer, UOp inner) {
  return std::ranges::all_of(addresses, [&](UOp a) {
    const auto x = StrideOf(a.src(1), outer), y = StrideOf(a.src(1), inner);
    return x && y && *x == *y * SizeOf(inner);
  });
}

struct Neighbours {
  UOp outer, inner;
};

// A pair of ranges closed side by side by one END or REDUCE, and by nothing else, that can be
// joined.
std::optional<Neighbours> FindMergeable(UOp sink) {
  const std::optional<Dependence> d = FindDependence(sink);
  if (!d) return std::nullopt;
  const uint64_t used = UsedOutsideAddresses(sink, *d);
  const std::vector<UOp> addresses = Addresses(sink);
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kEnd) && !u.is(Op::kReduce)) continue;
    for (int i = 1; i + 1 < u.num_src(); ++i) {
      const UOp outer = u.src(i), inner = u.src(i + 1);
      const uint64_t both = uint64_t{1} << d->IndexOf(outer) | uint64_t{1} << d->IndexOf(inner);
      if ((used & both) == 0 && Continues(addresses, outer, inner)) return Neighbours{outer, inner};
    }
  }
  return std::nullopt;
}

// A range whose size was rounded up: what it became, and where that is an iteration of the kernel.
struct Padded {
  std::vector<UOp> parts;
  UOp inside;
};

UOp WithGate(Rewriter& b, UOp address, UOp gate) {
  if (address.num_src() == 3) gate = b.Make(Op::kAnd, {address.src(2), gate});
  return b.Make(Op::kIndex, {address.src(0), address.src(1), gate});
}

// What a padded iteration computes is not stored, so it need not load either. A load that stays
// inside its buffer all the same is left without a gate.
UOp GateLoads(Rewriter& b, UOp root, const std::vector<Padded>& padded) {
  Graph& g = *b.graph();
  const std::optional<Dependence> d = FindDependence(root);
  if (!d) return g.Fail(ResourceExhausted("lowering: more than ", kMaxRanges, " ranges"));
  NodeMap<uint32_t> made(g);
  std::vector<UOp> src;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = g.at(id);
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(g.at(made[s]));
    if (u.is(Op::kLoad) && !ProveInside(u.src(0))) {
      for (const Padded& p : padded) {
        const bool follows = std::ranges::any_of(
            p.parts, [&](UOp part) { return d->Depends(u.src(0).src(1), part); });
        if (follows) src[0] = WithGate(b, src[0], p.inside);
      }
    }
    const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    const UOp copy = g.Make(u.op(), u.dtype(), src, arg);
    if (!copy.valid()) return copy;
    made[id] = copy.id();
  }
  return g.at(made[root]);
}

}  // namespace

std::string_view Name(Move::Kind kind) {
  constexpr std::string_view kNames[] = {"VECTORIZE", "UPCAST", "UNROLL", "THREAD", "OUTER"};
  return kNames[static_cast<int>(kind)];
}

UOp MergeRanges(Rewriter& b, UOp sink) {
  while (const std::optional<Neighbours> pair = FindMergeable(sink)) {
    // With the outer range held at 0, the inner one alone walks the whole product: its stride is
    // the same.
    Graph& g = *b.graph();
    const UOp merged = g.Range(pair->inner.arg(0), static_cast<AxisType>(pair->inner.arg(1)),
                               g.Index(SizeOf(pair->outer) * SizeOf(pair->inner)));
    sink = Substitute(
        b, sink, {{pair->outer.id(), {g.Index(0), {}}}, {pair->inner.id(), {merged, {merged}}}});
    if (!sink.valid()) return sink;
  }
  return sink;
}

absl::StatusOr<UOp> ApplyMoves(Rewriter& b, UOp sink, const std::vector<Move>& moves) {
  Graph& g = *b.graph();
  int64_t next_id = 0;
  for (uint32_t id : PostOrder(sink)) {
    if (g.op(id) == Op::kRange) next_id = std::max(next_id, g.arg(id)[0] + 1);
  }

  // Outermost first: the loops that remain, then the register tile, then the lanes.
  Replacements with;
  std::vector<Padded> padded;
  std::vector<Move> splits;
  for (const Move& move : moves) {
    if (move.kind == Move::Kind::kThread || move.kind == Move::Kind::kOuter) continue;
    splits.push_back(move);
  }
  std::vector<UOp> ranges;
  for (const Move& move : moves) {
    if (std::ranges::find(ranges, move.range) == ranges.end()) ranges.push_back(move.range);
  }
  for (const UOp range : ranges) {
    int64_t tile = 1;
    for (const Move& m : splits) tile *= m.range == range ? m.amount : 1;
    const int64_t size = SizeOf(range), loops = (size + tile - 1) / tile;
    const auto type = static_cast<AxisType>(range.arg(1));
    const bool thread = std::ranges::any_of(
        moves, [&](const Move& m) { return m.range == range && m.kind == Move::Kind::kThread; });
    if (type == AxisType::kReduce && loops * tile != size) {
      return Internal("lowering: ", tile, " does not divide the folded size ", size);
    }
    Replacement r;
    r.value = g.Index(0);
    if (loops > 1) {
      r.value = g.Range(next_id++, thread ? AxisType::kThread : type, g.Index(loops));
      r.ranges.push_back(r.value);
    }
    for (const Move& m : splits) {
      if (m.range != range) continue;
      const AxisType axis = m.kind == Move::Kind::kVectorize ? AxisType::kVector
                            : m.kind == Move::Kind::kUpcast  ? AxisType::kUpcast
                                                             : AxisType::kUnroll;
      const UOp part = g.Range(next_id++, axis, g.Index(m.amount));
      r.value = b.Make(Op::kAdd, {b.Make(Op::kMul, {r.value, g.Index(m.amount)}), part});
      r.ranges.push_back(part);
    }
    if (loops * tile != size) {
      padded.push_back({r.ranges, b.Make(Op::kCmpLt, {r.value, g.Index(size)})});
    }
    with.emplace(range.id(), std::move(r));
  }

  UOp out = Substitute(b, sink, with);
  if (out.valid() && !padded.empty()) out = GateLoads(b, out, padded);
  if (!out.valid()) return g.status();

  // The order of the loops, and the gate that keeps padded iterations from storing.
  std::vector<UOp> order;
  const auto place = [&](Move::Kind kind) {
    for (const Move& m : moves) {
      if (m.kind != kind) continue;
      for (UOp part : with.at(m.range.id()).ranges) {
        if (part.arg(1) != static_cast<int64_t>(AxisType::kUpcast) &&
            part.arg(1) != static_cast<int64_t>(AxisType::kVector) &&
            std::ranges::find(order, part) == order.end()) {
          order.push_back(part);
        }
      }
    }
  };
  place(Move::Kind::kThread);
  place(Move::Kind::kOuter);
  const UOp closed = out.src(0);
  if (!closed.is(Op::kEnd)) return out;
  for (int i = 1; i < closed.num_src(); ++i) {
    if (std::ranges::find(order, closed.src(i)) == order.end()) order.push_back(closed.src(i));
  }
  UOp store = closed.src(0);
  if (!padded.empty()) {
    UOp address = store.src(0);
    for (const Padded& p : padded) address = WithGate(b, address, p.inside);
    store = b.Make(Op::kStore, {address, store.src(1)});
  }
  order.insert(order.begin(), store);
  out = b.Make(Op::kSink, {order.size() == 1 ? store : b.Make(Op::kEnd, DType::kVoid, order)});
  if (!out.valid()) return g.status();
  return out;
}

}  // namespace telegrad
