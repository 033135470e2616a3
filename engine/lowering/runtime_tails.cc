// For a RANGE r over tiles of `part` times some lanes, of which W are whole:
//
//   whole tiles    r -> a range of W    conditions -> true
//   tail           r -> W    part -> a range t    END(..., r, part, lanes) -> END(..., t, lanes)
//
// where t has an iteration for each vector that begins below n. Without a part r becomes W + t.
// What closes r is then there twice: a REDUCE is its two values put together, an END two nests.
#include "engine/lowering/runtime_tails.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/runtime_condition.h"
#include "engine/lowering/runtime_tiles.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr int kMostSplits = 8;  // of a kernel

// Of the range that threads share: what takes its place, the first tile of an iteration, and how
// many whole tiles there are from that one on.
struct SharedTiles {
  UOp range = {}, first = {}, whole = {};
};

class TailSplitter {
 public:
  TailSplitter(Rewriter& b, UOp sink, const Dependence& d, const Target& target,
               absl::flat_hash_set<int64_t>* made)
      : b_(b),
        g_(*b.graph()),
        sink_(sink),
        d_(d),
        finder_(b, sink, d, target),
        order_(finder_.order()),
        conditions_(finder_.conditions()),
        made_(*made),
        next_id_(NextRangeId(sink)) {}

  // With one range split; the same if there is none.
  UOp Run() {
    for (const UOp range : d_.ranges) {
      if (made_.contains(range.range_id())) continue;
      const std::optional<RunTiles> tiles = finder_.Find(range);
      if (tiles) return Split(*tiles);
    }
    return sink_;
  }

 private:
  UOp Split(const RunTiles& tiles) {
    const SharedTiles shared = ShareTiles(tiles);
    const Replacements main = Main(tiles, shared);
    const std::optional<Replacements> tail = Tail(tiles, shared);
    if (!tail) return sink_;
    std::vector<UOp> first, second;
    for (const UOp closer : tiles.closers) {
      const UOp whole = Substitute(b_, closer, main), rest = Substitute(b_, closer, *tail);
      if (!whole.valid() || !rest.valid()) return {};
      first.push_back(GateStore(whole));
      second.push_back(GateLoads(GateStore(rest), tiles, *tail));
      if (!first.back().valid() || !second.back().valid()) return {};
    }
    return Splice(tiles, first, second);
  }

  UOp NewRange(AxisType type, UOp end) {
    made_.insert(next_id_);
    return g_.Range(next_id_++, type, end);
  }

  // In the loop that threads share an iteration has several tiles.
  SharedTiles ShareTiles(const RunTiles& tiles) {
    const UOp r = tiles.range;
    if (!IsType(r, AxisType::kThread)) return {};
    const UOp end = conditions_.RoundUp(r.src(0), tiles.together);
    const UOp shared = NewRange(AxisType::kThread, end);
    const UOp first = conditions_.Times(shared, tiles.together);
    return {shared, first, b_.Make(Op::kSub, {tiles.whole, first})};
  }

  Replacements Main(const RunTiles& tiles, const SharedTiles& shared) {
    Replacements with;
    const UOp r = tiles.range;
    if (shared.range.valid()) {
      const UOp some = b_.Make(Op::kMax, {shared.whole, g_.Index(0)});
      const UOp main = NewRange(AxisType::kLoop, conditions_.Least(some, g_.Index(tiles.together)));
      with[r.id()] = {b_.Make(Op::kAdd, {shared.first, main}), {shared.range, main}};
    } else {
      const UOp main = NewRange(r.axis_type(), tiles.whole);
      with[r.id()] = {main, {main}};
    }
    for (const UOp condition : tiles.conditions) with[condition.id()] = {g_.True(), {}};
    return with;
  }

  std::optional<Replacements> Tail(const RunTiles& tiles, const SharedTiles& shared) {
    Replacements with;
    const UOp r = tiles.range;
    UOp begin = tiles.whole, end = tiles.tail;
    AxisType type = r.axis_type();
    if (shared.range.valid()) {
      const UOp last =
          b_.Make(Op::kCmpEq,
                  {shared.range, b_.Make(Op::kFloorDiv, {tiles.whole, g_.Index(tiles.together)})});
      end = b_.Make(Op::kWhere, {last, end, g_.Index(0)});
      type = AxisType::kLoop;
    }
    const UOp t = NewRange(type, end);
    if (tiles.part.valid()) {
      with[tiles.part.id()] = {t, {}};
    } else {
      begin = g_.Make(Op::kAdd, {begin, t});
    }
    with[r.id()] = {begin, shared.range.valid() ? std::vector{shared.range, t} : std::vector{t}};
    for (uint32_t id : order_) {
      if (const auto tile = TileBeginOf(g_.at(id), r)) {
        with[id] = {conditions_.Times(begin, tile->step), {}};
      }
    }
    return RenameInside(tiles, &with) ? std::optional(std::move(with)) : std::nullopt;
  }

  // What is closed inside of the tiles gets loops of its own: a loop has one place.
  bool RenameInside(const RunTiles& tiles, Replacements* with) {
    RangeSet inside = 0, outside = 0;
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kEnd) && !u.is(Op::kReduce)) continue;
      const bool closes = std::ranges::find(tiles.closers, u) != tiles.closers.end();
      const bool depends = closes || d_.Depends(u, tiles.range);
      if (u.is(Op::kEnd) && depends && !closes) return false;
      bool passed = !closes || u.is(Op::kReduce);  // the range itself, outermost first
      for (int i = 1; i < u.num_src(); ++i) {
        if (u.src(i) == tiles.range) passed = true;
        (depends && passed ? inside : outside) |= Bit(d_.IndexOf(u.src(i)));
      }
    }
    for (RangeSet set = inside; set != 0; set &= set - 1) {
      const int r = std::countr_zero(set);
      const UOp range = d_.ranges[static_cast<size_t>(r)];
      if (with->contains(range.id()) || IsReplica(range) || IsType(range, AxisType::kVector)) {
        continue;
      }
      if (Has(outside, r) || d_.Depends(range.src(0), tiles.range)) return false;
      const UOp own = NewRange(range.axis_type(), range.src(0));
      (*with)[range.id()] = {own, {own}};
    }
    return true;
  }

  UOp WithGate(UOp address, UOp holds) {
    if (address.num_src() == 3) holds = b_.Make(Op::kAnd, {address.src(2), holds});
    return g_.Make(Op::kIndex, {address.src(0), address.src(1), holds});
  }

  // A nest with a gate in place of old values, which another nest may overwrite.
  UOp GateStore(UOp closer) {
    const UOp store = StoreOf(closer);
    if (!store.is(Op::kStore) || !LeavesOld(store)) return closer;
    return Rebuild(g_, closer, [&](UOp u, std::vector<UOp>* src) {
      if (u == store) *src = {WithGate(u.src(0), u.src(1).src(0)), u.src(1).src(1)};
      return WithSources(g_, u, *src);
    });
  }

  // The tail with gates at loads that could leave their buffers beyond the whole tiles.
  UOp GateLoads(UOp closer, const RunTiles& tiles, const Replacements& tail) {
    if (!closer.valid()) return {};
    const std::optional<Dependence> d = FindDependence(closer);
    if (!d) return {};
    UOp gate;
    for (const UOp condition : tiles.conditions) {
      const UOp own = Substitute(b_, condition, tail);
      if (!own.valid()) return {};
      gate = gate.valid() ? b_.Make(Op::kAnd, {gate, own}) : own;
    }
    const UOp t = tail.at(tiles.range.id()).ranges.back();
    return Rebuild(g_, closer, [&](UOp u, std::vector<UOp>* src) {
      if (u.is(Op::kLoad) && Memory(u.src(0)).is(Op::kParam) && d->Depends(u, t) &&
          !ProveInside(u.src(0))) {
        src->front() = WithGate(src->front(), gate);
      }
      return WithSources(g_, u, *src);
    });
  }

  UOp Splice(const RunTiles& tiles, const std::vector<UOp>& first, const std::vector<UOp>& second) {
    return Rebuild(g_, sink_, [&](UOp u, std::vector<UOp>* src) {
      if (const auto at = std::ranges::find(tiles.closers, u); at != tiles.closers.end()) {
        const auto i = static_cast<size_t>(at - tiles.closers.begin());
        return u.is(Op::kReduce) ? Together(u, first[i], second[i]) : first[i];
      }
      if (u.is(Op::kAfter) || u.is(Op::kSink)) {
        for (int i = u.num_src(); i-- > 0;) {
          const auto at = std::ranges::find(tiles.closers, u.src(i));
          if (at == tiles.closers.end()) continue;
          src->insert(src->begin() + i + 1,
                      second[static_cast<size_t>(at - tiles.closers.begin())]);
        }
      }
      return WithSources(g_, u, *src);
    });
  }

  UOp Together(UOp reduce, UOp x, UOp y) {
    switch (reduce.reduce_kind()) {
      case ReduceKind::kAdd:
        return b_.Make(Op::kAdd, {x, y});
      case ReduceKind::kMul:
        return b_.Make(Op::kMul, {x, y});
      case ReduceKind::kMax:
        return b_.Make(Op::kMax, {x, y});
    }
    return {};
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const Dependence& d_;
  const TileFinder finder_;
  const std::vector<uint32_t>& order_;
  const RunConditions& conditions_;
  absl::flat_hash_set<int64_t>& made_;  // numbers of ranges
  int64_t next_id_;
};

bool HasWorkgroups(const Dependence& d) {
  return std::ranges::any_of(d.ranges, [](UOp range) {
    return IsType(range, AxisType::kGroup) || IsType(range, AxisType::kLocal) ||
           IsType(range, AxisType::kWarp);
  });
}

}  // namespace

UOp SplitTails(Rewriter& b, UOp sink, const Target& target) {
  if (!ReadsNumbers(sink)) return sink;
  absl::flat_hash_set<int64_t> made;
  for (int i = 0; i < kMostSplits && sink.valid(); ++i) {
    const std::optional<Dependence> d = FindDependence(sink);
    if (!d || HasWorkgroups(*d)) return sink;
    const UOp split = TailSplitter(b, sink, *d, target, &made).Run();
    if (split == sink) return sink;
    sink = split;
  }
  return sink;
}

}  // namespace telegrad
