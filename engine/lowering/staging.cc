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
// A ring has several tiles in one buffer, and a chunk is an asynchronous copy: the first tiles are
// copied before the loop, and each iteration begins to copy a later tile than its own.
#include "engine/lowering/staging.h"

#include <algorithm>

#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

// How many tiles before it is read a ring's tile is copied. A thread may still read the tile before
// the one that others copy for: one place in the ring is for that.
int64_t TilesAhead(int64_t ring) { return ring - 2; }

// Among `group` rows, those that are `step` apart are stored after each other.
struct RowOrder {
  int64_t group = 1, step = 1;
};

// An order in which rows that are stored at once fall onto different banks, as far as there is one.
// Where rows begin at multiples of 16 bytes, eight threads store 16 bytes each at once, the width
// of all banks; of rows of 2 chunks and a gap as wide as one, every second one has its banks for
// itself, of 4 chunks every fourth. Where they begin at multiples of 8, sixteen threads store half
// a chunk each at once; of rows of 4 chunks and a gap of half of one, these are two neighbours, and
// the two rows eight further on.
RowOrder OrderOf(int64_t row_chunks, int64_t lanes, int64_t gap) {
  if (gap == lanes && (row_chunks == 2 || row_chunks == 4)) return {8, row_chunks};
  if (2 * gap == lanes && row_chunks == 4) return {16, 8};
  return {};
}

// The row that is the n-th to be stored.
UOp RowAt(Rewriter& b, UOp n, const RowOrder& order) {
  Graph& g = *b.graph();
  const auto make = [&](Op op, UOp x, int64_t y) { return b.Make(op, {x, g.Index(y)}); };
  const UOp among = make(Op::kFloorMod, n, order.group);
  const int64_t in_steps = order.group / order.step;
  const UOp far = make(Op::kMul, make(Op::kFloorMod, among, in_steps), order.step);
  const UOp near = make(Op::kFloorDiv, among, in_steps);
  const UOp first = make(Op::kMul, make(Op::kFloorDiv, n, order.group), order.group);
  return b.Make(Op::kAdd, {first, b.Make(Op::kAdd, {far, near})});
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

  // `others` has what else becomes of ranges that the value depends on.
  UOp Fill(UOp memory, const Replacements& others, const Turn& turn = {}) {
    const UOp value = Value(others, turn);
    std::vector<UOp> target{memory, turn.first.valid() ? Add(walk_.at, turn.first) : walk_.at};
    const UOp exists = Both(turn.exists, walk_.exists);
    if (exists.valid()) target.push_back(exists);
    const UOp to = g_.Make(Op::kIndex, DType::kVoid, target);
    const int64_t chunk = s_.shared ? s_.shared->chunk : 1;
    std::vector<UOp> end{s_.ring > 1 ? g_.Make(Op::kCopyAsync, DType::kVoid, {to, value.src(0)},
                                               {1, chunk, chunk, chunk})
                                     : g_.Make(Op::kStore, {to, value})};
    if (walk_.ranges.empty()) return end[0];
    end.insert(end.end(), walk_.ranges.begin(), walk_.ranges.end());
    return g_.Make(Op::kEnd, DType::kVoid, end);
  }

 private:
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
    }
    walk.ranges.insert(walk.ranges.end(), shared.threads.begin(), shared.threads.end());
    UOp row = b_.Make(Op::kFloorDiv, {chunk, g_.Index(row_chunks)});
    const RowOrder order = shared.along + 1 == axes.size()
                               ? OrderOf(row_chunks, shared.chunk, axes.back().gap)
                               : RowOrder{};
    if (order.group > 1 && rows % order.group == 0) row = RowAt(b_, row, order);
    const UOp first = Mul(b_.Make(Op::kFloorMod, {chunk, g_.Index(row_chunks)}), shared.chunk);
    UOp column = first;
    if (shared.chunk > 1 && s_.ring == 1) {
      column = Add(first, Loop(&walk, AxisType::kVector, shared.chunk, next_id));
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

// Of a ring: the copies before the loop, and those of each iteration.
struct RingFill {
  std::vector<UOp> begin;
  UOp later;
};

RingFill FillRing(Rewriter& b, const Staging& s, const Replacements& others, int64_t* next_id,
                  StagedTile* tile) {
  Graph& g = *b.graph();
  RingFill out;
  const UOp number = s.axes[s.ring_axis].tile;
  const int64_t tiles = SizeOf(s.anew.back()), ahead = TilesAhead(s.ring);
  const auto mul = [&](UOp x, int64_t y) { return b.Make(Op::kMul, {x, g.Index(y)}); };
  const auto place = [&](UOp n) {
    return mul(b.Make(Op::kFloorMod, {n, g.Index(s.ring)}), s.layout.elements());
  };
  const UOp base = Behind(g, tile->memory, std::span(s.anew).first(s.anew.size() - 1));
  for (int64_t i = 0; i < std::min(ahead, tiles); ++i) {
    const Turn turn{.tile = g.Index(i), .first = place(g.Index(i))};
    out.begin.push_back(Filler(b, s, next_id).Fill(base, others, turn));
  }
  const UOp next = b.Make(Op::kAdd, {number, g.Index(ahead)});
  const UOp exists = b.Make(Op::kCmpLt, {next, s.anew.back().src(0)});
  // Where there is none, the last one is not copied again: its address is inside of the value.
  const UOp least = b.Make(Op::kMax, {mul(next, -1), g.Index(1 - tiles)});
  Filler filler(b, s, next_id);
  const Turn turn{.tile = mul(least, -1), .exists = exists, .first = place(next)};
  out.later = filler.Fill(tile->memory, others, turn);
  tile->first = place(number);
  tile->read = filler.read();
  return out;
}

}  // namespace

UOp StagedMemory(Graph& g, const Staging& s) {
  const UOp buffer = g.Make(Op::kBuffer, s.dtype, {},
                            {static_cast<int64_t>(s.space), s.slot, s.layout.elements() * s.ring});
  return Behind(g, buffer, s.own);
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
  for (const Staging& s : tiles) {
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
  if (tiles.front().ring > 1) {
    const auto wait = [&](const std::vector<UOp>& copies, int64_t running) {
      return g.Make(Op::kWait, DType::kVoid, copies, std::vector<int64_t>{running});
    };
    std::vector<UOp> waits;
    if (!begin.empty()) waits.push_back(wait(begin, 0));
    waits.push_back(wait(filled, TilesAhead(tiles.front().ring)));
    filled = std::move(waits);
  }
  for (StagedTile& tile : out) tile.memory = Behind(g, tile.memory, filled);
  return out;
}

}  // namespace telegrad
