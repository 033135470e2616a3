#include "engine/lowering/moves.h"

#include <algorithm>
#include <optional>

#include "engine/lowering/affine.h"
#include "engine/lowering/block.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr int64_t kMinRepeated = 16;  // iterations of a loop that repeats a reduction's windows

bool IsLoop(UOp range) { return range.arg(1) == static_cast<int64_t>(AxisType::kLoop); }

// Ranges that a gate depends on, and those that anything else than an address does.
struct Uses {
  uint64_t gates = 0, values = 0;
};

Uses UsesOf(UOp sink, const Dependence& d) {
  const Graph& graph = *sink.graph();
  std::vector<bool> seen(sink.id() + 1, false);
  std::vector<uint32_t> stack{sink.id()};
  Uses uses;
  while (!stack.empty()) {
    const UOp u = graph.at(stack.back());
    stack.pop_back();
    if (seen[u.id()]) continue;
    seen[u.id()] = true;
    for (int i = 0; i < u.num_src(); ++i) {
      const UOp s = u.src(i);
      const bool closes = i > 0 && (u.is(Op::kEnd) || u.is(Op::kReduce));
      if (u.is(Op::kIndex) && i == 1) continue;
      if (u.is(Op::kIndex) && i == 2) {
        uses.gates |= d.of[s.id()];
        continue;
      }
      if (s.is(Op::kRange)) {
        if (!closes) uses.values |= uint64_t{1} << d.IndexOf(s);
        continue;
      }
      stack.push_back(s.id());
    }
  }
  return uses;
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

// Whether `u` closes both ranges, one right after the other, or neither.
bool ClosesAsOne(UOp u, UOp outer, UOp inner) {
  for (int i = 1; i < u.num_src(); ++i) {
    if (u.src(i) == inner) return false;
    if (u.src(i) != outer) continue;
    return i + 1 < u.num_src() && u.src(i + 1) == inner;
  }
  return true;
}

// Whether the rows of `inner` leave so many lanes unused that vectors across their ends are fewer,
// and what is gated are the windows of a reduction that other loops repeat: of these vectors each
// has its mask, which is found once for all of the reduction.
bool PaysAcrossRows(UOp outer, UOp inner, const std::vector<UOp>& addresses,
                    const std::vector<UOp>& closers, const Dependence& d, int64_t lanes) {
  if (!IsLoop(outer) || !IsLoop(inner)) return false;
  const int64_t rows = SizeOf(outer), row = SizeOf(inner);
  const int64_t apart = rows * ((row + lanes - 1) / lanes);
  const int64_t joined = (rows * row + lanes - 1) / lanes;
  if (apart * 20 <= joined * 21) return false;
  std::vector<UOp> gated;  // by either range
  for (UOp a : addresses) {
    if (a.num_src() < 3 || !(d.Depends(a.src(2), outer) || d.Depends(a.src(2), inner))) continue;
    gated.push_back(a);
    const std::vector<uint32_t> gate = PostOrder(a.src(2));
    const Graph& g = *a.graph();
    if (std::ranges::any_of(gate, [&](uint32_t id) { return g.op(id) == Op::kLoad; })) return false;
  }
  bool windows = false, repeated = false;
  for (UOp u : closers) {
    for (int i = 1; i < u.num_src(); ++i) {
      const UOp range = u.src(i);
      const auto depends = [&](UOp a) {
        return d.Depends(a.src(1), range) || d.Depends(a.src(2), range);
      };
      if (u.is(Op::kReduce)) {
        windows |= std::ranges::any_of(gated, [&](UOp a) { return d.Depends(a.src(2), range); });
      } else if (IsLoop(range) && SizeOf(range) >= kMinRepeated) {
        repeated |= std::ranges::none_of(gated, depends);
      }
    }
  }
  return windows && repeated;
}

// A pair of ranges that can be joined: whoever closes one closes the other next to it.
std::optional<Neighbours> FindMergeable(UOp sink, int64_t lanes) {
  const std::optional<Dependence> d = FindDependence(sink);
  if (!d) return std::nullopt;
  const Uses uses = UsesOf(sink, *d);
  std::vector<UOp> addresses, closers;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kIndex)) addresses.push_back(u);
    if (u.is(Op::kEnd) || u.is(Op::kReduce)) closers.push_back(u);
  }
  for (UOp u : closers) {
    for (int i = 1; i + 1 < u.num_src(); ++i) {
      const UOp outer = u.src(i), inner = u.src(i + 1);
      const uint64_t both = uint64_t{1} << d->IndexOf(outer) | uint64_t{1} << d->IndexOf(inner);
      const bool fixed = outer.src(0).is_const() && inner.src(0).is_const();
      if (fixed && (uses.values & both) == 0 && Continues(addresses, outer, inner) &&
          std::ranges::all_of(closers, [&](UOp c) { return ClosesAsOne(c, outer, inner); }) &&
          ((uses.gates & both) == 0 ||
           PaysAcrossRows(outer, inner, addresses, closers, *d, lanes))) {
        return Neighbours{outer, inner};
      }
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
// inside its buffer all the same is left without a gate. An END's ranges are put into `order`, as
// far as that names them; an END of an END becomes one.
UOp GateAndOrder(Rewriter& b, UOp root, const std::vector<Padded>& padded,
                 const std::vector<UOp>& order) {
  Graph& g = *b.graph();
  const std::optional<Dependence> d = FindDependence(root);
  if (!d) return g.Fail(ResourceExhausted("lowering: more than ", kMaxRanges, " ranges"));
  const auto rank = [&](UOp range) { return std::ranges::find(order, range) - order.begin(); };
  NodeMap<uint32_t> made(g);
  std::vector<UOp> src;
  for (uint32_t id : PostOrder(root)) {
    const UOp u = g.at(id);
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(g.at(made[s]));
    const bool load = u.is(Op::kLoad) && !padded.empty() && !ProveInside(u.src(0));
    if (load || u.is(Op::kStore)) {
      const UOp decides = load ? u.src(0).src(1) : u;
      for (const Padded& p : padded) {
        const bool follows =
            std::ranges::any_of(p.parts, [&](UOp part) { return d->Depends(decides, part); });
        if (follows) src[0] = WithGate(b, src[0], p.inside);
      }
    }
    if (u.is(Op::kEnd)) {
      std::vector<UOp> ranges(src.begin() + 1, src.end());
      UOp body = src[0];
      if (body.is(Op::kEnd)) {
        for (int i = 1; i < body.num_src(); ++i) ranges.push_back(body.src(i));
        body = body.src(0);
      }
      std::ranges::stable_sort(ranges, {}, rank);
      src.assign(1, body);
      src.insert(src.end(), ranges.begin(), ranges.end());
    }
    if (u.is(Op::kEnd) && src.size() == 1) {
      made[id] = src[0].id();
      continue;
    }
    const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    const UOp copy = g.Make(u.op(), u.dtype(), src, arg);
    if (!copy.valid()) return copy;
    made[id] = copy.id();
  }
  return g.at(made[root]);
}

int64_t NextRangeId(UOp sink) {
  const Graph& g = *sink.graph();
  int64_t next = 0;
  for (uint32_t id : PostOrder(sink)) {
    if (g.op(id) == Op::kRange) next = std::max(next, g.arg(id)[0] + 1);
  }
  return next;
}

// `reduce` over fewer ranges, in the order in which it has them; its body alone if none is left.
UOp Refold(Rewriter& b, UOp reduce, UOp range, const Replacement& with) {
  std::vector<UOp> src{Substitute(b, reduce.src(0), {{range.id(), with}})};
  for (int i = 1; i < reduce.num_src(); ++i) {
    if (reduce.src(i) != range) {
      src.push_back(reduce.src(i));
    } else {
      src.insert(src.end(), with.ranges.begin(), with.ranges.end());
    }
  }
  if (!src[0].valid() || src.size() == 1) return src[0];
  return b.Make(Op::kReduce, DType::kVoid, src, std::vector<int64_t>{reduce.arg(0)});
}

UOp Peel(Rewriter& b, UOp sink, UOp range, int64_t amount) {
  constexpr Op kCombine[] = {Op::kAdd, Op::kMul, Op::kMax};  // by ReduceKind
  Graph& g = *b.graph();
  const int64_t next = NextRangeId(sink), rest = SizeOf(range) - amount;
  const auto type = static_cast<AxisType>(range.arg(1));
  Replacement first{g.Index(0), {}}, last{g.Index(amount), {}};
  if (amount > 1) {
    first.ranges.push_back(g.Range(next, type, g.Index(amount)));
    first.value = first.ranges[0];
  }
  if (rest > 1) {
    last.ranges.push_back(g.Range(next + 1, type, g.Index(rest)));
    last.value = b.Make(Op::kAdd, {last.ranges[0], g.Index(amount)});
  }
  if (IsLoop(range)) {
    std::vector<UOp> nests;
    for (const Replacement& part : {first, last}) {
      const UOp copy = Substitute(b, sink, {{range.id(), part}});
      for (int i = 0; copy.valid() && i < copy.num_src(); ++i) nests.push_back(copy.src(i));
    }
    return g.Make(Op::kSink, DType::kVoid, nests);
  }
  Replacements with;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!u.is(Op::kReduce)) continue;
    bool folds = false;
    for (int i = 1; i < u.num_src(); ++i) folds |= u.src(i) == range;
    if (!folds) continue;
    const UOp x = Refold(b, u, range, first), y = Refold(b, u, range, last);
    if (!x.valid() || !y.valid()) return {};
    with[id] = {b.Make(kCombine[u.arg(0)], {x, y}), {}};
  }
  return Substitute(b, sink, with);
}

}  // namespace

// With the outer range held at 0, the inner one alone walks the whole product: its stride is the
// same. A gate needs to know both.
UOp Join(Rewriter& b, UOp sink, UOp outer, UOp inner) {
  Graph& g = *b.graph();
  const UOp merged = g.Range(inner.arg(0), static_cast<AxisType>(inner.arg(1)),
                             g.Index(SizeOf(outer) * SizeOf(inner)));
  const Replacements apart{{outer.id(), {b.Make(Op::kFloorDiv, {merged, inner.src(0)}), {}}},
                           {inner.id(), {b.Make(Op::kFloorMod, {merged, inner.src(0)}), {merged}}}};
  Replacements with{{outer.id(), {g.Index(0), {}}}, {inner.id(), {merged, {merged}}}};
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!u.is(Op::kIndex) || u.num_src() != 3) continue;
    with[u.src(2).id()] = {Substitute(b, u.src(2), apart), {}};
  }
  return Substitute(b, sink, with);
}

UOp MergeRanges(Rewriter& b, UOp sink, const Target& target) {
  // Threads of a workgroup are no lanes of a vector: none are unused at the end of a row.
  const int64_t lanes = target.has_workgroups() ? 1 : std::max<int64_t>(1, target.vector_bytes / 4);
  while (const std::optional<Neighbours> pair = FindMergeable(sink, lanes)) {
    sink = Join(b, sink, pair->outer, pair->inner);
    if (!sink.valid()) return sink;
  }
  return sink;
}

absl::StatusOr<UOp> ApplyMoves(Rewriter& b, UOp sink, const std::vector<RangeMove>& moves) {
  Graph& g = *b.graph();
  if (!moves.empty() && moves[0].kind == Move::Kind::kPeel) {
    for (const RangeMove& move : moves) {
      sink = Peel(b, sink, move.range, move.amount);
      if (!sink.valid()) return g.status();
    }
    return sink;
  }
  int64_t next_id = NextRangeId(sink);
  const bool once = OverwritesWhatItReads(sink);

  // Outermost first: the loops that remain, then the register tile, then the lanes.
  Replacements with;
  std::vector<Padded> padded;
  std::vector<RangeMove> splits;
  for (const RangeMove& move : moves) {
    if (move.kind == Move::Kind::kThread || move.kind == Move::Kind::kOuter) continue;
    splits.push_back(move);
  }
  std::ranges::stable_partition(splits,
                                [](const RangeMove& m) { return m.kind == Move::Kind::kBlock; });
  std::vector<UOp> blocks, outside;
  std::vector<UOp> ranges;
  for (const RangeMove& move : moves) {
    if (std::ranges::find(ranges, move.range) == ranges.end()) ranges.push_back(move.range);
  }
  for (const UOp range : ranges) {
    int64_t tile = 1;
    for (const RangeMove& m : splits) tile *= m.range == range ? m.amount : 1;
    const int64_t size = SizeOf(range), loops = (size + tile - 1) / tile;
    const auto type = static_cast<AxisType>(range.arg(1));
    const bool thread = std::ranges::any_of(moves, [&](const RangeMove& m) {
      return m.range == range && m.kind == Move::Kind::kThread;
    });
    if (type == AxisType::kReduce && loops * tile != size) {
      return Internal("lowering: ", tile, " does not divide the reduced size ", size);
    }
    Replacement r;
    r.value = g.Index(0);
    if (loops > 1) {
      const bool block = std::ranges::any_of(splits, [&](const RangeMove& m) {
        return m.range == range && m.kind == Move::Kind::kBlock;
      });
      const AxisType loop = thread ? AxisType::kThread : block ? AxisType::kLoop : type;
      r.value = g.Range(next_id++, loop, g.Index(loops));
      r.ranges.push_back(r.value);
      if (block) (type == AxisType::kReduce ? blocks : outside).push_back(r.value);
    }
    const bool whole = loops * tile == size, back = !whole && !once && size > tile;
    if (back) {  // min(value * tile, size - tile); what follows adds to it, element by element
      const UOp begin = b.Make(Op::kMul, {r.value, g.Index(-tile)});
      const UOp least = b.Make(Op::kMax, {begin, g.Index(tile - size)});
      r.value = b.Make(Op::kMul, {least, g.Index(-1)});
    }
    int64_t step = tile;  // of `value`, in elements
    for (const RangeMove& m : splits) {
      if (m.range != range) continue;
      const AxisType axis = m.kind == Move::Kind::kVectorize ? AxisType::kVector
                            : m.kind == Move::Kind::kUpcast  ? AxisType::kUpcast
                            : m.kind == Move::Kind::kBlock   ? type
                                                             : AxisType::kUnroll;
      const UOp part = g.Range(next_id++, axis, g.Index(m.amount));
      step /= m.amount;
      if (back) {
        r.value = b.Make(Op::kAdd, {r.value, b.Make(Op::kMul, {part, g.Index(step)})});
      } else {
        r.value = b.Make(Op::kAdd, {b.Make(Op::kMul, {r.value, g.Index(m.amount)}), part});
      }
      r.ranges.push_back(part);
    }
    if (!whole && !back) {
      padded.push_back({r.ranges, b.Make(Op::kCmpLt, {r.value, g.Index(size)})});
    }
    with.emplace(range.id(), std::move(r));
  }

  UOp out = Substitute(b, sink, with);
  if (!out.valid()) return g.status();

  // What is moved before a reduced range's blocks is outside of them, and the parts that loops are
  // cut into are; the rest follows.
  std::vector<UOp> order;
  const auto move_out = [&](UOp part) {
    const bool loop = !IsType(part, AxisType::kUpcast) && !IsType(part, AxisType::kVector);
    if (loop && std::ranges::find(order, part) == order.end()) order.push_back(part);
  };
  const auto moved = [](const RangeMove& m) {
    return m.kind == Move::Kind::kThread || m.kind == Move::Kind::kOuter;
  };
  if (!blocks.empty()) {
    for (const RangeMove& m : moves) {
      if (m.kind == Move::Kind::kBlock && IsType(m.range, AxisType::kReduce)) break;
      if (moved(m)) move_out(with.at(m.range.id()).ranges[0]);
    }
    for (UOp part : outside) move_out(part);
    outside = order;
  }
  for (const Move::Kind kind : {Move::Kind::kThread, Move::Kind::kOuter}) {
    for (const RangeMove& m : moves) {
      if (m.kind != kind) continue;
      for (UOp part : with.at(m.range.id()).ranges) move_out(part);
    }
  }
  out = GateAndOrder(b, out, padded, order);
  if (out.valid() && !blocks.empty()) out = FoldInBlocks(b, out, blocks, outside);
  if (!out.valid()) return g.status();
  return out;
}

}  // namespace telegrad
