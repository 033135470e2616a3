// A tile is filled by
//
//   END(STORE(INDEX(memory, p'), value'), loops)
//
// where the loops walk over the tile, p' is where they are in it, and value' is the value with
// their iterations in place of the kernel's. A thread that copies by itself has loops of its own
// along each axis. Threads that copy together have one chunk each in every step,
//
//   for step: chunk = step * threads + thread      row = chunk / chunks of a row
//
// and rows of which several are stored at once are taken in an order in which they fall onto
// different banks.
//
// A ring has several tiles in one buffer. Of more than two, a chunk is an asynchronous copy: the
// first tiles are copied before the loop, and each iteration begins to copy a later tile than its
// own. In a ring of two, what a thread copies of a tile is in registers between its load and its
// store. The first tile is loaded before the loop, and each iteration
//
//   stores the registers to its place     of the two, of which others may still read the other one
//   barrier
//   loads the next tile                   which is not waited for before it is stored; the last one
//                                         is loaded again where there is no next one
//   reads its own
#include "engine/lowering/staging.h"

#include <algorithm>
#include <iterator>

#include "engine/lowering/ranges.h"
#include "engine/lowering/workgroup.h"

namespace telegrad {
namespace {

// How many tiles before it is read a ring's tile is copied. A thread may still read the tile before
// the one that others copy for: one place in the ring is for that.
int64_t TilesAhead(int64_t ring) { return ring - 2; }

bool IsAsync(const Staging& s) { return s.ring > kRingOfRegisters; }

UOp NestOf(Graph& g, UOp effect, std::span<const UOp> ranges) {
  if (ranges.empty()) return effect;
  std::vector<UOp> end{effect};
  end.insert(end.end(), ranges.begin(), ranges.end());
  return g.Make(Op::kEnd, DType::kVoid, end);
}

// Which of a ring's tiles is copied: its number, whether there is one, and where it begins.
struct Turn {
  UOp tile = {}, exists = {}, first = {};
};

class Filler {
 public:
  Filler(Rewriter& b, const Staging& s, int64_t* next_id)
      : b_(b),
        g_(*b.graph()),
        s_(s),
        walk_(s.shared ? WalkTogether(next_id) : WalkAlone(next_id)) {}

  UOp read() const { return walk_.read; }
  int64_t held() const { return walk_.held; }

  // `others` has what else becomes of ranges that the value depends on.
  UOp Fill(UOp memory, const Replacements& others, const Turn& turn = {}) {
    const UOp value = Value(others, turn), to = Target(memory, turn);
    const int64_t chunk = s_.shared ? s_.shared->chunk : 1;
    return NestOf(g_,
                  IsAsync(s_) ? g_.Make(Op::kCopyAsync, DType::kVoid, {to, value.src(0)},
                                        {1, chunk, chunk, chunk})
                              : g_.Make(Op::kStore, {to, value}),
                  walk_.ranges);
  }

  // The same in two nests: what the thread copies is loaded into its registers, and stored. That
  // there is no such tile is no gate: a load with a branch around it is waited for at once.
  UOp FillRegisters(UOp registers, const Replacements& others, const Turn& turn) {
    std::vector<UOp> own;
    std::ranges::copy_if(walk_.ranges, std::back_inserter(own),
                         [](UOp r) { return !IsThreads(r); });
    const UOp value = Value(others, turn);
    return NestOf(g_, g_.Make(Op::kStore, {g_.Make(Op::kIndex, {registers, walk_.own}), value}),
                  own);
  }
  UOp StoreRegisters(UOp memory, UOp registers, const Turn& turn) {
    const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {registers, walk_.own})});
    return NestOf(g_, g_.Make(Op::kStore, {Target(memory, turn), value}), walk_.ranges);
  }

 private:
  // Where the walk is in the tile.
  UOp Target(UOp memory, const Turn& turn) {
    std::vector<UOp> target{memory, turn.first.valid() ? Add(walk_.at, turn.first) : walk_.at};
    const UOp exists = IsAsync(s_) ? Both(turn.exists, walk_.exists) : walk_.exists;
    if (exists.valid()) target.push_back(exists);
    return g_.Make(Op::kIndex, DType::kVoid, target);
  }

  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t y) { return b_.Make(Op::kMul, {x, g_.Index(y)}); }
  UOp Less(UOp x, int64_t y) { return b_.Make(Op::kCmpLt, {x, g_.Index(y)}); }

  // The loops over a tile, and where in it they are.
  struct Walk {
    std::vector<UOp> ranges = {};  // outermost first
    std::vector<UOp> place = {};   // along each axis,
    std::vector<UOp> begin = {};   // and that of the first element of the chunk
    UOp exists = {};               // whether there is such a chunk; invalid: always
    UOp at = {}, read = {};        // the numbers of the elements that they and the kernel are at
    UOp own = {};                  // of threads together: the number among what the thread copies,
    int64_t held = 0;              // which are so many
  };

  UOp Both(UOp x, UOp y) { return !x.valid() ? y : !y.valid() ? x : g_.Make(Op::kAnd, {x, y}); }

  UOp Loop(Walk* walk, AxisType type, int64_t size, int64_t* next_id) {
    walk->ranges.push_back(g_.Range((*next_id)++, type, g_.Index(size)));
    return walk->ranges.back();
  }

  // The copy and the kernel go along the axes side by side.
  Walk WalkAlone(int64_t* next_id) {
    Walk walk{.at = g_.Index(0), .read = g_.Index(0)};
    std::vector<UOp> read;
    for (const StagedAxis& axis : s_.axes) {
      UOp at;
      for (const CopyLoop& loop : axis.loops) {
        const UOp range = Loop(&walk, loop.type, loop.size, next_id);
        at = at.valid() ? Add(Mul(at, loop.size), range) : range;
      }
      walk.place.push_back(at);
      Number(&walk, &read);
    }
    walk.begin = walk.place;
    return walk;
  }

  // Numbers the elements by one more axis of their places.
  void Number(Walk* walk, std::vector<UOp>* read) {
    const size_t n = read->size() + 1;
    read->push_back(s_.axes[n - 1].read);
    if (read->back().valid()) walk->read = s_.layout.Step(b_, walk->read, *read);
    walk->at = s_.layout.Step(b_, walk->at, std::span(walk->place).first(n));
  }

  // Rows of chunks; all axes but that of the chunks number the rows.
  Walk WalkTogether(int64_t* next_id) {
    Walk walk{.at = g_.Index(0), .read = g_.Index(0)};
    const SharedCopy& shared = *s_.shared;
    const std::vector<LayoutAxis>& axes = s_.layout.axes;
    int64_t count = 1, rows = 1;
    for (UOp range : shared.threads) count *= SizeOf(range);
    for (size_t i = 0; i < axes.size(); ++i) rows *= i == shared.along ? 1 : axes[i].size;
    const int64_t row_chunks = axes[shared.along].size / shared.chunk, chunks = rows * row_chunks;
    const int64_t steps = (chunks + count - 1) / count;
    UOp chunk = RowMajor(b_, shared.threads);
    if (steps > 1) {  // copies that are waited for are written out
      const AxisType type = s_.ring > 1 ? AxisType::kUpcast : AxisType::kLoop;
      const UOp step = Loop(&walk, type, steps, next_id);
      chunk = Add(Mul(step, count), chunk);
      walk.own = step;
    }
    walk.ranges.insert(walk.ranges.end(), shared.threads.begin(), shared.threads.end());
    UOp row = b_.Make(Op::kFloorDiv, {chunk, g_.Index(row_chunks)});
    const RowOrder order = shared.along + 1 == axes.size()
                               ? OrderOf(row_chunks, shared.chunk, axes.back().gap, shared.banks)
                               : RowOrder{};
    if (order.group > 1 && rows % order.group == 0) row = order.RowAt(b_, row);
    const UOp first = Mul(b_.Make(Op::kFloorMod, {chunk, g_.Index(row_chunks)}), shared.chunk);
    UOp column = first;
    if (shared.chunk > 1 && !IsAsync(s_)) {
      column = Add(first, Loop(&walk, AxisType::kVector, shared.chunk, next_id));
    }
    if (s_.ring == kRingOfRegisters) {
      walk.held = steps * shared.chunk;
      walk.own = Mul(walk.own.valid() ? walk.own : g_.Index(0), shared.chunk);
      if (shared.chunk > 1) walk.own = Add(walk.own, walk.ranges.back());
    }
    walk.place.resize(axes.size());
    for (size_t i = axes.size(); i-- > 0;) {
      if (i == shared.along) {
        walk.place[i] = column;
        continue;
      }
      rows /= axes[i].size;
      const UOp size = g_.Index(axes[i].size);
      walk.place[i] = rows == 1 ? row : b_.Make(Op::kFloorMod, {row, size});
      if (rows > 1) row = b_.Make(Op::kFloorDiv, {row, size});
    }
    walk.begin = walk.place;
    walk.begin[shared.along] = first;
    if (steps * count != chunks) walk.exists = Less(chunk, chunks);
    for (std::vector<UOp> read; read.size() < axes.size();) Number(&walk, &read);
    return walk;
  }

  // Of a load, a chunk lies all inside or all outside of what there is.
  UOp Value(const Replacements& others, const Turn& turn) {
    if (!s_.value.valid()) return g_.ConstWord(s_.dtype, s_.constant);
    Replacements with = others;
    UOp inside;
    for (size_t i = 0; i < s_.axes.size(); ++i) {
      const StagedAxis& axis = s_.axes[i];
      const int64_t size = s_.layout.axes[i].size;
      UOp value = walk_.place[i], begin = walk_.begin[i];
      if (axis.tile.valid()) {
        const UOp tile = turn.tile.valid() && i == s_.ring_axis ? turn.tile : axis.tile;
        const UOp first = Mul(tile, size);
        value = Add(first, value);
        begin = Add(first, begin);
      }
      if (axis.of % size != 0) inside = Both(inside, Less(begin, axis.of));
      with[axis.range.id()] = {value, {value}};
    }
    inside = Both(inside, walk_.exists);
    const UOp given = s_.value.src(0);
    if (given.num_src() == 3) inside = Both(given.src(2), inside);
    std::vector<UOp> address{given.src(0), given.src(1)};
    if (inside.valid()) address.push_back(inside);
    const UOp from = Substitute(b_, g_.Make(Op::kIndex, DType::kVoid, address), with);
    return g_.Make(Op::kLoad, {from});
  }

  Rewriter& b_;
  Graph& g_;
  const Staging& s_;
  const Walk walk_;
};

UOp Behind(Graph& g, UOp memory, std::span<const UOp> what) {
  if (what.empty()) return memory;
  std::vector<UOp> src{memory};
  src.insert(src.end(), what.begin(), what.end());
  return g.Make(Op::kAfter, DType::kVoid, src);
}

// Where in a ring's buffer the tile of that number begins.
UOp PlaceOf(Rewriter& b, const Staging& s, UOp tile) {
  Graph& g = *b.graph();
  return b.Make(Op::kMul,
                {b.Make(Op::kFloorMod, {tile, g.Index(s.ring)}), g.Index(s.layout.elements())});
}

// What fills the tile so much later than the iteration's.
struct LaterTile {
  Filler filler;
  Turn turn;
};

LaterTile FillerAhead(Rewriter& b, const Staging& s, int64_t ahead, int64_t* next_id) {
  Graph& g = *b.graph();
  const int64_t tiles = SizeOf(s.anew.back());
  const UOp next = b.Make(Op::kAdd, {s.axes[s.ring_axis].tile, g.Index(ahead)});
  const UOp exists = b.Make(Op::kCmpLt, {next, s.anew.back().src(0)});
  // Where there is none, it is the last one: its address is inside of the value.
  const auto minus = [&](UOp x) { return b.Make(Op::kMul, {x, g.Index(-1)}); };
  const UOp least = b.Make(Op::kMax, {minus(next), g.Index(1 - tiles)});
  Filler filler(b, s, next_id);
  return {filler, {.tile = minus(least), .exists = exists, .first = PlaceOf(b, s, next)}};
}

// A ring of two: the nest that stores the registers to the iteration's place, and then the one that
// loads the next tile into them.
class RegisterRing {
 public:
  RegisterRing(Rewriter& b, const Staging& s, UOp memory, const Replacements& others, int64_t slot,
               int64_t* next_id)
      : b_(b), s_(s), others_(others), filler_(b, s, next_id) {
    Graph& g = *b.graph();
    const std::span<const UOp> around = std::span(s.anew).first(s.anew.size() - 1);
    const UOp number = s.axes[s.ring_axis].tile;
    first_ = PlaceOf(b, s, number);
    registers_ = g.Make(Op::kBuffer, s.dtype, {},
                        {static_cast<int64_t>(AddressSpace::kRegister), slot, filler_.held()});
    const UOp begin =
        filler_.FillRegisters(Behind(g, registers_, around), others, {.tile = g.Index(0)});
    const UOp held[] = {begin, s.anew.back()};
    store_ = filler_.StoreRegisters(Behind(g, memory, around), Behind(g, registers_, held),
                                    {.tile = number, .first = first_});
  }

  StagedTile Tile(UOp memory) const { return {memory, first_, filler_.read()}; }
  UOp store() const { return store_; }
  // `stores`: of all tiles that are read together, after which there is a barrier.
  UOp LoadNext(std::span<const UOp> stores, int64_t* next_id) {
    auto [filler, turn] = FillerAhead(b_, s_, 1, next_id);
    return filler.FillRegisters(Behind(*b_.graph(), registers_, stores), others_, turn);
  }

 private:
  Rewriter& b_;
  const Staging& s_;
  const Replacements& others_;
  Filler filler_;
  UOp registers_, first_, store_;
};

// Of a ring of copies: those before the loop, and those of each iteration.
struct RingFill {
  std::vector<UOp> begin;
  UOp later;
};

RingFill FillRing(Rewriter& b, const Staging& s, const Replacements& others, int64_t* next_id,
                  StagedTile* tile) {
  Graph& g = *b.graph();
  RingFill out;
  const int64_t tiles = SizeOf(s.anew.back()), ahead = TilesAhead(s.ring);
  const UOp base = Behind(g, tile->memory, std::span(s.anew).first(s.anew.size() - 1));
  for (int64_t i = 0; i < std::min(ahead, tiles); ++i) {
    const Turn turn{.tile = g.Index(i), .first = PlaceOf(b, s, g.Index(i))};
    out.begin.push_back(Filler(b, s, next_id).Fill(base, others, turn));
  }
  LaterTile later = FillerAhead(b, s, ahead, next_id);
  out.later = later.filler.Fill(tile->memory, others, later.turn);
  tile->first = PlaceOf(b, s, s.axes[s.ring_axis].tile);
  tile->read = later.filler.read();
  return out;
}

}  // namespace

UOp StagedMemory(Graph& g, const Staging& s) {
  const UOp buffer = g.Make(Op::kBuffer, s.dtype, {},
                            {static_cast<int64_t>(s.space), s.slot, s.layout.elements() * s.ring});
  return Behind(g, buffer, s.own);
}

UOp Accumulate(Graph& g, const Accumulators& a, const std::function<UOp(UOp)>& fold) {
  std::vector<UOp> inside{a.init};
  inside.insert(inside.end(), a.loops.begin(), a.loops.end());
  const UOp to = g.Make(Op::kIndex, {Behind(g, a.memory, inside), a.at});
  std::vector<UOp> loops(a.loops.begin(), a.loops.end());
  loops.insert(loops.end(), a.kept.begin(), a.kept.end());
  const UOp value = fold(to);
  if (!value.valid()) return value;
  const UOp folded = NestOf(g, g.Make(Op::kStore, {to, value}), loops);
  return g.Make(Op::kLoad, {g.Make(Op::kIndex, {Behind(g, a.memory, {&folded, 1}), a.read})});
}

UOp StagedTile::Load(Rewriter& b) const {
  Graph& g = *b.graph();
  const UOp index = b.Make(Op::kAdd, {read, first});
  return g.Make(Op::kLoad, {g.Make(Op::kIndex, {memory, index})});
}

TileFill FillTile(Rewriter& b, const Staging& s, UOp memory, const Replacements& others,
                  int64_t* next_id) {
  Filler filler(b, s, next_id);
  return {filler.Fill(Behind(*b.graph(), memory, s.anew), others), filler.read()};
}

std::vector<StagedTile> StageTiles(Rewriter& b, std::span<const Staging> tiles,
                                   const Replacements& others, int64_t* next_id) {
  Graph& g = *b.graph();
  std::vector<StagedTile> out;
  std::vector<UOp> begin, filled;
  std::vector<RegisterRing> rings;
  for (const Staging& s : tiles) {
    if (s.ring == kRingOfRegisters) {
      const UOp memory = StagedMemory(g, s);
      const auto slot = s.slot + static_cast<int64_t>(tiles.size());
      rings.emplace_back(b, s, memory, others, slot, next_id);
      out.push_back(rings.back().Tile(memory));
      filled.push_back(rings.back().store());
      continue;
    }
    if (s.ring > 1) {
      out.push_back({.memory = StagedMemory(g, s), .first = {}, .read = {}});
      const RingFill fill = FillRing(b, s, others, next_id, &out.back());
      begin.insert(begin.end(), fill.begin.begin(), fill.begin.end());
      filled.push_back(fill.later);
      continue;
    }
    Filler filler(b, s, next_id);
    out.push_back({.memory = StagedMemory(g, s), .first = g.Index(0), .read = filler.read()});
    filled.push_back(filler.Fill(Behind(g, out.back().memory, s.anew), others));
  }
  if (IsAsync(tiles.front())) {
    const auto wait = [&](const std::vector<UOp>& copies, int64_t running) {
      return g.Make(Op::kWait, DType::kVoid, copies, std::vector<int64_t>{running});
    };
    std::vector<UOp> waits;
    if (!begin.empty()) waits.push_back(wait(begin, 0));
    waits.push_back(wait(filled, TilesAhead(tiles.front().ring)));
    filled = std::move(waits);
  }
  std::vector<UOp> next;
  for (RegisterRing& ring : rings) next.push_back(ring.LoadNext(filled, next_id));
  for (StagedTile& tile : out) tile.memory = Behind(g, Behind(g, tile.memory, filled), next);
  return out;
}

}  // namespace telegrad
