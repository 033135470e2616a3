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
#include "engine/lowering/activity.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/runtime_condition.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr int kMostSplits = 8;                           // of a kernel
constexpr int64_t kMostTogether = 16, kLeastShares = 8;  // iterations for each thread
constexpr double kLeastPart = 1.0 / 64;                  // of the work, that gates are
constexpr double kMostInstructions = 2048;               // of a tile, that become twice as many

bool IsReplica(UOp range) {
  return IsType(range, AxisType::kUpcast) || IsType(range, AxisType::kUnroll);
}

// Whether a STORE leaves what is in memory where a condition does not hold.
bool LeavesOld(UOp store) {
  const UOp address = store.src(0), value = store.src(1);
  return value.is(Op::kWhere) && value.src(2).is(Op::kLoad) && value.src(2).src(0) == address;
}

UOp StoreOf(UOp nest) {
  while (nest.is(Op::kEnd)) nest = nest.src(0);
  return nest;
}

// Of the range that threads share: what takes its place, the first tile of an iteration, and how
// many whole tiles there are from that one on.
struct SharedTiles {
  UOp range = {}, first = {}, whole = {};
};

// A range that is to be split.
struct RunTiles {
  UOp range;
  UOp part = {};         // its iterations in a tile that are no lanes; invalid: there are none
  UOp whole = {};        // tiles without gates
  UOp tail = {};         // iterations of the tail
  int64_t together = 1;  // tiles in an iteration of the loop that threads share
  std::vector<UOp> closers = {};
  std::vector<UOp> conditions = {};  // that hold in whole tiles
};

class TailSplitter {
 public:
  TailSplitter(Rewriter& b, UOp sink, const Dependence& d, const Target& target,
               absl::flat_hash_set<int64_t>* made)
      : b_(b),
        g_(*b.graph()),
        sink_(sink),
        order_(PostOrder(sink)),
        d_(d),
        activity_(sink, d),
        conditions_(b, d, activity_),
        keeps_order_(KeepsOrder(target)),
        threads_(target.threads),
        made_(*made),
        next_id_(NextRangeId(sink)) {}

  // With one range split; the same if there is none.
  UOp Run() {
    for (const UOp range : d_.ranges) {
      const std::optional<RunTiles> tiles = TilesOf(range);
      if (tiles) return Split(*tiles);
    }
    return sink_;
  }

 private:
  std::optional<RunTiles> TilesOf(UOp range) {
    const bool loop = IsType(range, AxisType::kLoop) || IsType(range, AxisType::kReduce) ||
                      IsType(range, AxisType::kThread);
    if (!loop || range.src(0).is_const() || SizeOf(range) < 2 || made_.contains(range.arg(0))) {
      return std::nullopt;
    }
    RunTiles tiles{.range = range};
    if (IsType(range, AxisType::kThread)) {
      tiles.together = std::min(SizeOf(range) / (kLeastShares * threads_), kMostTogether);
      if (tiles.together < 2) return std::nullopt;
    }
    if (!FindClosers(&tiles) || !Bound(&tiles) || !Pays(tiles)) return std::nullopt;
    return tiles;
  }

  bool FindClosers(RunTiles* tiles) const {
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kEnd) && !u.is(Op::kReduce)) {
        // Memory that each iteration has for itself.
        if (u.is(Op::kAfter) && d_.Depends(u, tiles->range)) return false;
        continue;
      }
      if (u.is(Op::kEnd) && u.src(0).is(Op::kEnd)) return false;
      if (std::ranges::find(u.src_ids().subspan(1), tiles->range.id()) == u.src_ids().end()) {
        continue;
      }
      if (!MayCopy(u, *tiles)) return false;
      tiles->closers.push_back(u);
    }
    return !tiles->closers.empty() && !ReadsWhatItWrites(*tiles);
  }

  // Whether a nest reads an argument that it or another one with these tiles writes: what it reads
  // is from before the kernel, so all of it would have to come first. Old values that stay do not
  // count: stores will have gates instead.
  bool ReadsWhatItWrites(const RunTiles& tiles) const {
    if (tiles.closers[0].is(Op::kReduce)) return false;
    std::vector<UOp> written, read;
    for (const UOp closer : tiles.closers) {
      const UOp store = StoreOf(closer), value = store.src(1);
      written.push_back(Memory(store.src(0)));
      read.push_back(store.src(0).src(1));
      if (LeavesOld(store)) {
        read.insert(read.end(), {value.src(0), value.src(1)});
      } else {
        read.push_back(value);
      }
    }
    for (const UOp root : read) {
      for (uint32_t id : PostOrder(root)) {
        const UOp u = g_.at(id);
        if (u.is(Op::kLoad) && Memory(u.src(0)).is(Op::kParam) &&
            std::ranges::find(written, Memory(u.src(0))) != written.end()) {
          return true;
        }
      }
    }
    return false;
  }

  // Whether two of it, one after the other, do the same.
  bool MayCopy(UOp closer, const RunTiles& tiles) const {
    if (!tiles.closers.empty() && tiles.closers[0].op() != closer.op()) return false;
    if (closer.is(Op::kReduce)) {
      return !keeps_order_ || !IsOrderedSum(closer);
    }
    return closer.src(0).is(Op::kStore);
  }

  // Reads the conditions of all closers, and from them how many whole tiles there are, and how long
  // the tail is.
  bool Bound(RunTiles* tiles) const {
    UOp vectors;  // of a tile's part and lanes, that begin below all limits
    bool gated = false;
    for (const UOp closer : tiles->closers) {
      UOp own;  // of this closer
      for (const UOp condition : activity_.Needs(closer)) {
        if (!d_.Depends(condition, tiles->range)) continue;
        const auto form = conditions_.Read(condition, tiles->range, 0);
        if (!form || !TakesPart(*form, tiles)) continue;  // it stays a gate
        const UOp whole = conditions_.End(*form, tiles->range, form->Most());
        const UOp end = Vectors(*form, *tiles);
        if (!whole.valid() || !end.valid()) return false;
        tiles->whole = tiles->whole.valid() ? conditions_.Least(tiles->whole, whole) : whole;
        own = own.valid() ? conditions_.Least(own, end) : end;
        gated |= !form->free.empty();
        tiles->conditions.push_back(condition);
      }
      if (!own.valid()) return false;
      vectors = vectors.valid() ? b_.Make(Op::kMax, {vectors, own}) : own;
    }
    if (!gated) return false;
    const UOp zero = g_.Index(0);
    tiles->whole =
        conditions_.Least(b_.Make(Op::kMax, {tiles->whole, zero}), g_.Index(SizeOf(tiles->range)));
    const int64_t parts = tiles->part.valid() ? SizeOf(tiles->part) : 1;
    const UOp before = conditions_.Times(tiles->whole, -parts);
    const UOp rest = b_.Make(Op::kMax, {b_.Make(Op::kAdd, {vectors, before}), zero});
    // No rule may see that there is one iteration at most: that would no longer be a loop.
    tiles->tail = conditions_.Least(rest, g_.Index(std::max<int64_t>(parts, 2)));
    return true;
  }

  // Whether all that the condition depends on beside the range are lanes and one part of the tile,
  // the same in all conditions.
  bool TakesPart(const RunCondition& form, RunTiles* tiles) const {
    UOp part;
    for (const auto& [u, c] : form.free) {
      if (!u.is(Op::kRange) || c < 0) return false;
      if (IsType(u, AxisType::kVector)) continue;
      if (!IsReplica(u) || part.valid() || !AllClose(*tiles, u)) return false;
      part = u;
      if (StepOf(form, tiles->range) != c * SizeOf(u)) return false;
    }
    if (form.main != tiles->range && !TileBeginOf(form.main, tiles->range)) return false;
    if (tiles->conditions.empty()) tiles->part = part;
    return part == tiles->part;
  }

  static bool AllClose(const RunTiles& tiles, UOp range) {
    return std::ranges::all_of(tiles.closers, [&](UOp closer) {
      const auto closed = closer.src_ids().subspan(1);
      return std::ranges::find(closed, range.id()) != closed.end();
    });
  }

  // By which the form grows from tile to tile.
  static int64_t StepOf(const RunCondition& form, UOp range) {
    const auto tile = TileBeginOf(form.main, range);
    return tile ? form.factor * tile->step : form.factor;
  }

  // How many vectors, counted from the first of the range, begin where the condition holds.
  UOp Vectors(const RunCondition& form, const RunTiles& tiles) const {
    const int64_t parts = tiles.part.valid() ? SizeOf(tiles.part) : 1;
    const int64_t step = StepOf(form, tiles.range) / parts;
    if (step < 1) return {};
    return conditions_.RoundUp(conditions_.Limit(form, form.Least()), step);
  }

  // Gates cost something, and the code of a tile is there twice.
  bool Pays(const RunTiles& tiles) const {
    double work = 0, gates = 0, instructions = 0;
    std::vector<bool> gating(sink_.id() + 1, false);
    for (const UOp c : tiles.conditions) gating[c.id()] = true;
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      const bool gate = gating[id] || IsGate(u, gating) || IsOldValue(u, tiles);
      if (IsBool(u.dtype()) && gate) gating[id] = true;
      const RangeSet set = d_.of[u.is(Op::kReduce) ? u.src(0).id() : id];
      if (!Has(set, d_.IndexOf(tiles.range)) || u.is(Op::kRange)) continue;
      double copies = 1, times = 1;
      for (RangeSet rest = set; rest != 0; rest &= rest - 1) {
        const UOp range = d_.ranges[static_cast<size_t>(std::countr_zero(rest))];
        if (IsType(range, AxisType::kVector)) continue;
        (IsReplica(range) ? copies : times) *= static_cast<double>(SizeOf(range));
      }
      instructions += copies;
      work += copies * times;
      if (gate) gates += copies * times;
    }
    return gates >= kLeastPart * work && instructions <= kMostInstructions;
  }

  // Whether it is there only because of a condition.
  static bool IsGate(UOp u, const std::vector<bool>& gating) {
    if (u.is(Op::kWhere) || (u.is(Op::kAnd) && IsBool(u.dtype()))) return gating[u.src(0).id()];
    return u.is(Op::kIndex) && u.num_src() == 3 && gating[u.src(2).id()];
  }

  static bool IsOldValue(UOp u, const RunTiles& tiles) {
    return u.is(Op::kLoad) && std::ranges::any_of(tiles.closers, [&](UOp closer) {
             const UOp store = StoreOf(closer);
             return store.is(Op::kStore) && LeavesOld(store) && store.src(1).src(2) == u;
           });
  }

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
      const UOp main = NewRange(AxisType{r.arg(1)}, tiles.whole);
      with[r.id()] = {main, {main}};
    }
    for (const UOp condition : tiles.conditions) with[condition.id()] = {g_.True(), {}};
    return with;
  }

  std::optional<Replacements> Tail(const RunTiles& tiles, const SharedTiles& shared) {
    Replacements with;
    const UOp r = tiles.range;
    UOp begin = tiles.whole, end = tiles.tail;
    AxisType type{r.arg(1)};
    if (shared.range.valid()) {
      const UOp last = b_.Make(Op::kCmpLt, {shared.whole, g_.Index(tiles.together)});
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
      const UOp own = NewRange(AxisType{range.arg(1)}, range.src(0));
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
    switch (ReduceKind{reduce.arg(0)}) {
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
  const std::vector<uint32_t> order_;
  const Dependence& d_;
  const Activity activity_;
  const RunConditions conditions_;
  const bool keeps_order_;
  const int64_t threads_;
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
