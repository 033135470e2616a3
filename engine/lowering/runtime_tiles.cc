// From the conditions of all that closes a range follows how many of its tiles are whole: those in
// which each of them holds for all parts and lanes.
#include "engine/lowering/runtime_tiles.h"

#include <algorithm>
#include <bit>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int64_t kMostTogether = 16, kLeastShares = 8;  // iterations for each thread
constexpr double kLeastPart = 1.0 / 64;                  // of the work, that gates are
constexpr double kMostInstructions = 2048;               // of a tile, that become twice as many

bool AllClose(const RunTiles& tiles, UOp range) {
  return std::ranges::all_of(tiles.closers, [&](UOp closer) {
    const auto closed = closer.src_ids().subspan(1);
    return std::ranges::find(closed, range.id()) != closed.end();
  });
}

// By which the form grows from tile to tile.
int64_t StepOf(const RunCondition& form, UOp range) {
  const auto tile = TileBeginOf(form.main, range);
  return tile ? form.factor * tile->step : form.factor;
}

// Whether it is there only because of a condition.
bool IsGate(UOp u, const std::vector<bool>& gating) {
  if (u.is(Op::kWhere) || (u.is(Op::kAnd) && IsBool(u.dtype()))) return gating[u.src(0).id()];
  return u.is(Op::kIndex) && u.num_src() == 3 && gating[u.src(2).id()];
}

bool IsOldValue(UOp u, const RunTiles& tiles) {
  return u.is(Op::kLoad) && std::ranges::any_of(tiles.closers, [&](UOp closer) {
           const UOp store = StoreOf(closer);
           return store.is(Op::kStore) && LeavesOld(store) && store.src(1).src(2) == u;
         });
}

}  // namespace

bool IsReplica(UOp range) {
  return IsType(range, AxisType::kUpcast) || IsType(range, AxisType::kUnroll);
}

bool LeavesOld(UOp store) {
  const UOp address = store.src(0), value = store.src(1);
  return value.is(Op::kWhere) && value.src(2).is(Op::kLoad) && value.src(2).src(0) == address;
}

UOp StoreOf(UOp nest) {
  while (nest.is(Op::kEnd)) nest = nest.src(0);
  return nest;
}

TileFinder::TileFinder(Rewriter& b, UOp sink, const Dependence& d, const Target& target)
    : b_(b),
      g_(*b.graph()),
      sink_(sink),
      order_(PostOrder(sink)),
      d_(d),
      activity_(sink, d),
      conditions_(b, d, activity_),
      keeps_order_(KeepsOrder(target)),
      threads_(target.threads) {}

std::optional<RunTiles> TileFinder::Find(UOp range) const {
  const bool loop = IsType(range, AxisType::kLoop) || IsType(range, AxisType::kReduce) ||
                    IsType(range, AxisType::kThread);
  if (!loop || range.src(0).is_const() || SizeOf(range) < 2) {
    return std::nullopt;
  }
  if (NumbersMovedTiles(range)) return std::nullopt;
  RunTiles tiles{.range = range};
  if (IsType(range, AxisType::kThread)) {
    tiles.together = std::min(SizeOf(range) / (kLeastShares * threads_), kMostTogether);
    if (tiles.together < 2) return std::nullopt;
  }
  if (!FindClosers(&tiles) || !Bound(&tiles) || !Pays(tiles)) return std::nullopt;
  return tiles;
}

// Whether the last tile begins earlier than its number says, and something else than its beginning
// depends on that number, as the index of a copy that is packed by tiles. The tail begins where the
// number says, and the copy has other elements there.
bool TileFinder::NumbersMovedTiles(UOp range) const {
  absl::flat_hash_set<uint32_t> begins;
  for (uint32_t id : order_) {
    const UOp u = g_.at(id);
    if (TileBeginOf(u, range)) begins.insert(u.src(0).id());
  }
  if (begins.empty()) return false;
  return std::ranges::any_of(order_, [&](uint32_t id) {
    const UOp u = g_.at(id);
    if (begins.contains(id) || TileBeginOf(u, range)) return false;
    const bool closes = u.is(Op::kEnd) || u.is(Op::kReduce);
    return std::ranges::any_of(u.src_ids().first(closes ? 1 : u.num_src()),
                               [&](uint32_t s) { return s == range.id() || begins.contains(s); });
  });
}

bool TileFinder::FindClosers(RunTiles* tiles) const {
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
bool TileFinder::ReadsWhatItWrites(const RunTiles& tiles) const {
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
bool TileFinder::MayCopy(UOp closer, const RunTiles& tiles) const {
  if (!tiles.closers.empty() && tiles.closers[0].op() != closer.op()) return false;
  if (closer.is(Op::kReduce)) {
    return !keeps_order_ || !IsOrderedSum(closer);
  }
  return closer.src(0).is(Op::kStore);
}

// The conditions that all closers need. One that only some of them need has to stay a gate: the
// others go on where it no longer holds.
std::vector<UOp> TileFinder::NeededByAll(const RunTiles& tiles) const {
  std::vector<UOp> needed = activity_.Needs(tiles.closers[0]);
  for (const UOp closer : std::span(tiles.closers).subspan(1)) {
    const std::vector<UOp> own = activity_.Needs(closer);
    std::erase_if(needed, [&](UOp c) { return std::ranges::find(own, c) == own.end(); });
  }
  return needed;
}

// Reads the conditions, and from them how many whole tiles there are, and how long the tail is.
bool TileFinder::Bound(RunTiles* tiles) const {
  UOp vectors;  // of a tile's part and lanes, that begin below all limits
  bool gated = false;
  for (const UOp condition : NeededByAll(*tiles)) {
    if (!d_.Depends(condition, tiles->range)) continue;
    const auto form = conditions_.Read(condition, tiles->range, 0);
    if (!form || !TakesPart(*form, tiles)) continue;  // it stays a gate
    const UOp whole = conditions_.End(*form, tiles->range, form->Most());
    const UOp end = Vectors(*form, *tiles);
    if (!whole.valid() || !end.valid()) return false;
    tiles->whole = tiles->whole.valid() ? conditions_.Least(tiles->whole, whole) : whole;
    vectors = vectors.valid() ? conditions_.Least(vectors, end) : end;
    gated |= !form->free.empty();
    tiles->conditions.push_back(condition);
  }
  if (!gated) return false;
  const UOp zero = g_.Index(0);
  // The range's own end may follow from conditions that are no longer there, as they hold below it.
  const UOp end = tiles->range.src(0);
  tiles->whole = conditions_.Least(b_.Make(Op::kMax, {tiles->whole, zero}), end);
  const int64_t parts = tiles->part.valid() ? SizeOf(tiles->part) : 1;
  vectors = conditions_.Least(vectors, conditions_.Times(end, parts));
  const UOp before = conditions_.Times(tiles->whole, -parts);
  const UOp rest = b_.Make(Op::kMax, {b_.Make(Op::kAdd, {vectors, before}), zero});
  // No rule may see that there is one iteration at most: that would no longer be a loop.
  tiles->tail = conditions_.Least(rest, g_.Index(std::max<int64_t>(parts, 2)));
  return true;
}

// Whether all that the condition depends on beside the range are lanes and one part of the tile,
// the same in all conditions.
bool TileFinder::TakesPart(const RunCondition& form, RunTiles* tiles) const {
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

// How many vectors, counted from the first of the range, begin where the condition holds.
UOp TileFinder::Vectors(const RunCondition& form, const RunTiles& tiles) const {
  const int64_t parts = tiles.part.valid() ? SizeOf(tiles.part) : 1;
  const int64_t step = StepOf(form, tiles.range) / parts;
  if (step < 1) return {};
  return conditions_.RoundUp(conditions_.Limit(form, form.Least()), step);
}

// Gates cost something, and the code of a tile is there twice.
bool TileFinder::Pays(const RunTiles& tiles) const {
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

}  // namespace telegrad
