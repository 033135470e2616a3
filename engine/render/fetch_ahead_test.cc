// The loops are run here, and what they ask for is compared with what they read afterwards.
#include "engine/render/fetch_ahead.h"

#include <limits>
#include <set>

#include "engine/types/machine_costs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

constexpr int64_t kBytes = 4, kTile = 24;

// for panel (4) { for row (rows) { for k (64) { copy[(panel * 64 + k) * 24 + ...] } } }
struct Loops {
  Graph g;
  UOp panel, row, k, index;
  std::vector<UOp> open;
  explicit Loops(int64_t rows, AxisType innermost = AxisType::kReduce)
      : panel(g.Range(0, AxisType::kThread, g.Index(4))),
        row(g.Range(1, AxisType::kLoop, g.Index(rows))),
        k(g.Range(2, innermost, g.Index(64))),
        index(g.Make(Op::kMul, {g.Make(Op::kAdd, {g.Make(Op::kMul, {panel, g.Index(64)}), k}),
                                g.Index(kTile)})),
        open{panel, row, k} {}
  std::optional<FetchAhead> Plan(int64_t cache_bytes = 1 << 20) const {
    Target target;
    target.cache_bytes = cache_bytes;
    return PlanFetchAhead(index, open, 4 * 64 * kTile, kBytes, target);
  }
};

TEST(FetchAhead, WhileAPanelIsReadAllOfTheNextIsAskedForAndNoMore) {
  for (const int64_t rows : {1, 5, 32}) {
    const Loops loops(rows);
    const auto ahead = loops.Plan();
    ASSERT_TRUE(ahead.has_value()) << rows;
    for (int64_t panel = 0; panel < 4; ++panel) {
      std::set<int64_t> asked;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t k = 0; k < 64; ++k) {
          const auto sum = [&](const FetchAhead::Terms& terms) {
            int64_t total = 0;
            for (const auto& [range, factor] : terms) {
              total += factor * (range == loops.panel ? panel : range == loops.row ? row : k);
            }
            return total;
          };
          int64_t at = sum(ahead->panel) + ahead->constant;
          if (at >= 4 * 64 * kTile) at = 0;
          for (int64_t line = 0; line < ahead->lines; ++line) {
            asked.insert((at * kBytes + sum(ahead->bytes)) / kFetchedLineBytes + line);
          }
        }
      }
      const int64_t bytes = 64 * kTile * kBytes, first = (panel + 1) % 4 * bytes;
      // 24 * 4 bytes in each iteration of k, in 5 parts of which each is 19 bytes.
      const int64_t covered = rows == 5 ? bytes / 96 * 95 : bytes;
      EXPECT_EQ(*asked.begin(), first / kFetchedLineBytes) << rows;
      EXPECT_LE(*asked.rbegin(), (first + bytes - 1) / kFetchedLineBytes) << rows;
      EXPECT_GE(std::ssize(asked), covered / kFetchedLineBytes) << rows;
    }
  }
}

TEST(FetchAhead, OnlyWhereItSavesMoreThanItCosts) {
  EXPECT_TRUE(Loops(1).Plan().has_value());
  EXPECT_FALSE(Loops(97).Plan().has_value()) << "less than a byte in each iteration";
  EXPECT_FALSE(Loops(1, AxisType::kLoop).Plan().has_value()) << "no fold";
  EXPECT_TRUE(Loops(1).Plan(4 * 64 * kTile * kBytes).has_value());
  EXPECT_FALSE(Loops(1).Plan(4 * 64 * kTile * kBytes - 1).has_value()) << "the cache has no room";
  // Loops around the one over panels read all of the copy again.
  for (const int64_t passes : {16, 17}) {
    Loops loops(1);
    loops.open.insert(loops.open.begin(), loops.g.Range(3, AxisType::kLoop, loops.g.Index(passes)));
    EXPECT_EQ(loops.Plan().has_value(), passes == 16) << passes;
  }
}

// Of which a product of 64 bits would be none.
TEST(FetchAhead, NotOfMoreIterationsThanCanBeCounted) {
  Loops loops(int64_t{1} << 32);
  loops.index = loops.g.Make(Op::kMul, {loops.panel, loops.g.Index(kTile)});
  loops.k = loops.g.Range(2, AxisType::kReduce, loops.g.Index(int64_t{1} << 32));
  loops.open = {loops.panel, loops.row, loops.k};
  EXPECT_FALSE(loops.Plan().has_value());
}

TEST(FetchAhead, WhatIsNoSumOfLoopsHasNone) {
  Loops loops(1);
  loops.index =
      loops.g.Make(Op::kAdd, {loops.index, loops.g.Range(4, AxisType::kLoop, loops.g.Index(3))});
  EXPECT_FALSE(loops.Plan().has_value()) << "an index of a loop that is not open";
  loops.index = loops.k;
  EXPECT_FALSE(loops.Plan().has_value()) << "no loop goes on to a next panel";
}

// for row (768) { w[row * 768 + column ...] }, of which 256 columns are read together, and
// for block (96) { for column (4) { w[(8 * block ...) * 768 + 64 * column ...] } }.
TEST(RowAhead, IsALaterRowOfAMatrixThatIsReadOnce) {
  Graph g;
  Target target;
  target.cache_bytes = 1 << 20;
  const auto sum = [&](UOp x, UOp y) { return g.Make(Op::kAdd, {x, y}); };
  const auto times = [&](UOp x, int64_t n) { return g.Make(Op::kMul, {x, g.Index(n)}); };
  const UOp part = g.Range(0, AxisType::kThread, g.Index(3));
  const UOp row = g.Range(1, AxisType::kReduce, g.Index(768));
  const UOp index = sum(times(part, 256), times(row, 768));
  const auto plan = [&](UOp at, std::vector<UOp> loops, int64_t elements = 768 * 768) {
    return PlanRowAhead(at, {&at, 1}, loops, elements, kBytes, target);
  };
  EXPECT_EQ(plan(index, {part, row}), 16 * 768);
  EXPECT_EQ(plan(index, {part, row}, 768 * 100), std::nullopt) << "it may be in a cache";
  const UOp again = g.Range(2, AxisType::kLoop, g.Index(4));
  EXPECT_EQ(plan(index, {part, again, row}), std::nullopt) << "it is read four times";

  const UOp block = g.Range(3, AxisType::kLoop, g.Index(96));
  const UOp column = g.Range(4, AxisType::kLoop, g.Index(4));
  const UOp strip = sum(sum(times(part, 256), times(block, 8 * 768)), times(column, 64));
  EXPECT_EQ(plan(strip, {part, block, column}), 8 * 768);

  // An iteration that reads eight neighbours of 16 elements goes on where it has ended.
  const UOp rest = g.Range(7, AxisType::kReduce, g.Index(6));
  std::vector<UOp> neighbours;
  for (int64_t j = 0; j < 8; ++j) {
    neighbours.push_back(sum(sum(times(row, 768), times(rest, 128)), g.Index(16 * j)));
  }
  const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
  for (UOp& neighbour : neighbours) neighbour = sum(neighbour, iota);
  const std::vector<UOp> own = {row, rest};
  for (const size_t first : {0, 3, 7}) {
    EXPECT_EQ(PlanRowAhead(neighbours[first], neighbours, own, 768 * 768, kBytes, target),
              std::nullopt);
    EXPECT_FALSE(
        PlanTileAhead(neighbours[first], neighbours, own, 768 * 768, kBytes, target).has_value());
  }
  neighbours.erase(neighbours.begin() + 4);
  EXPECT_NE(PlanRowAhead(neighbours[0], neighbours, own, 768 * 768, kBytes, target), std::nullopt);

  // Rows that are whole are contiguous, and columns of threads are not each other's next rows.
  const UOp all = g.Range(5, AxisType::kLoop, g.Index(12));
  EXPECT_EQ(plan(sum(times(row, 768), times(all, 64)), {row, all}), std::nullopt);
  EXPECT_EQ(plan(times(part, 768), {part}), std::nullopt);

  // Each row is read by 64 windows.
  const UOp tap = g.Range(6, AxisType::kReduce, g.Index(64));
  const UOp window = sum(times(sum(row, tap), 768), times(all, 64));
  EXPECT_EQ(plan(window, {row, all, tap}, 831 * 256), std::nullopt);
}

// for row (4096) { for block (columns / 16) { x[row * columns + block * 16 ...] } }
TEST(StreamAhead, PagesOrALaterRow) {
  Graph g;
  Target target;
  target.cache_bytes = 1 << 20;
  target.first_level_bytes = 32 << 10;
  const auto plan_of = [&](const StreamLoop& loop, int64_t columns, int64_t step = 16,
                           AxisType around = AxisType::kThread, int64_t rows = 4096) {
    const UOp row = g.Range(0, around, g.Index(rows));
    const UOp block = g.Range(1, AxisType::kLoop, g.Index(columns / step));
    const auto times = [&](UOp x, int64_t n) { return g.Make(Op::kMul, {x, g.Index(n)}); };
    const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
    const UOp begin = g.Make(Op::kAdd, {times(row, columns), times(block, step)});
    const UOp index = g.Make(Op::kAdd, {begin, iota});
    const std::vector<UOp> loops = {row, block};
    return PlanStreamAhead(index, {&index, 1}, loops, loop, rows * columns, kBytes, target);
  };
  const auto plan = [&](int64_t columns, bool first, bool last, auto... more) {
    return plan_of({.first = first, .last = last}, columns, more...);
  };
  const auto pages = static_cast<int64_t>(CostsOf(target).thread.strip_bytes) / kBytes;
  EXPECT_EQ(plan(4096, true, true), pages) << "one loop";
  // The cache keeps a row for the last of several loops.
  EXPECT_EQ(plan(4096, true, false), std::nullopt);
  EXPECT_EQ(plan(4096, false, true), 4096);
  EXPECT_EQ(plan(512, false, true), pages) << "the fourth row";
  EXPECT_EQ(plan(480, false, true), 5 * 480);
  // Not a longer one.
  EXPECT_EQ(plan(128 << 10, true, false), std::nullopt);
  EXPECT_EQ(plan(128 << 10, false, true), std::nullopt);
  EXPECT_EQ(plan(4096, true, true, 32), std::nullopt) << "every other vector";
  EXPECT_EQ(plan(4096, true, true, 16, AxisType::kThread, 32), std::nullopt) << "small";
  // A light loop asks for a later row of what comes from memory only.
  const StreamLoop only{.much = false}, last{.first = false, .much = false};
  EXPECT_EQ(plan_of(only, 4096), std::nullopt);
  EXPECT_EQ(plan_of(last, 4096), 4096);
  EXPECT_EQ(plan_of(last, 4096, 16, AxisType::kThread, 512), std::nullopt) << "8 MiB";
}

// for tile (56) { for channel (passes) { for k (256) { x[k * 784 + tile * 14 + 0 ... 13] } } }
struct Tiles {
  static constexpr int64_t kTiles = 56, kRow = 784, kRows = 256;
  Graph g;
  UOp tile = g.Range(0, AxisType::kThread, g.Index(kTiles));
  UOp channel, k;
  std::vector<UOp> loops, indices;
  explicit Tiles(int64_t passes = 2, AxisType innermost = AxisType::kReduce)
      : channel(g.Range(1, AxisType::kLoop, g.Index(passes))),
        k(g.Range(2, innermost, g.Index(kRows))),
        loops{tile, channel, k} {
    for (int64_t j = 0; j < 14; ++j) indices.push_back(At(kRow, 14, j));
  }
  UOp At(int64_t row, int64_t step, int64_t constant) {
    const UOp of_tile = g.Make(Op::kMul, {tile, g.Index(step)});
    const UOp of_row = g.Make(Op::kMul, {k, g.Index(row)});
    return g.Make(Op::kAdd, {g.Make(Op::kAdd, {of_row, of_tile}), g.Index(constant)});
  }
  std::optional<TileAhead> Plan(size_t first = 0, int64_t elements = kRows * kRow) const {
    return PlanTileAhead(indices[first], indices, loops, elements, kBytes, Target());
  }
};

TEST(TileAhead, OfEachRowWhatTheNextTileReadsIsAskedFor) {
  for (const size_t first : {0, 5, 13}) {
    const Tiles tiles;
    const auto ahead = tiles.Plan(first);
    ASSERT_TRUE(ahead.has_value()) << first;
    for (int64_t tile = 0; tile + 1 < Tiles::kTiles; ++tile) {
      for (const int64_t k : {0, 1, 100}) {
        const auto line = [&](int64_t t, int64_t j) {
          return (k * Tiles::kRow + t * 14 + j) * kBytes / kFetchedLineBytes;
        };
        std::set<int64_t> there = {line(tile, 0), line(tile, 13)};  // this tile reads them itself
        const int64_t last = line(tile, static_cast<int64_t>(first) + ahead->last);
        for (int64_t i = 0; i < ahead->lines; ++i) there.insert(last - i);
        EXPECT_TRUE(there.contains(line(tile + 1, 0)) && there.contains(line(tile + 1, 13)))
            << tile << " of row " << k;
        EXPECT_LE(last, line(tile + 1, 13));
      }
    }
  }
}

TEST(TileAhead, OnlyWhereTheProcessorDoesNotFetchAheadItself) {
  EXPECT_EQ(Tiles().Plan()->lines, 1);
  EXPECT_EQ(Tiles(16).Plan()->lines, 1);
  EXPECT_FALSE(Tiles(17).Plan().has_value()) << "17 channels read what the first one has fetched";
  EXPECT_FALSE(Tiles(2, AxisType::kLoop).Plan().has_value()) << "no reduction";
  EXPECT_FALSE(Tiles().Plan(0, 16 << 10 >> 2).has_value()) << "a small argument stays in the cache";
  Tiles near;
  for (size_t j = 0; j < 14; ++j) near.indices[j] = near.At(16, 14, static_cast<int64_t>(j));
  EXPECT_FALSE(near.Plan().has_value()) << "rows that lie beside each other";
  Tiles one;
  one.loops = {one.channel, one.k};
  EXPECT_FALSE(one.Plan().has_value()) << "no loop over tiles";
  // An index behind a gate may have any constant, and a loop of one iteration any step.
  Tiles gated;
  gated.indices.push_back(gated.At(Tiles::kRow, 14, std::numeric_limits<int64_t>::min()));
  gated.indices.push_back(gated.At(Tiles::kRow, 14, std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(gated.Plan()->last, Tiles().Plan()->last);
  Tiles jump;
  jump.indices = {jump.At(Tiles::kRow, int64_t{1} << 62, 0)};
  EXPECT_FALSE(jump.Plan().has_value());
  Tiles wide;  // of which a tile reads 2,048 neighbours of a row
  wide.indices = {wide.At(4096, 2048, 0), wide.At(4096, 2048, 2047)};
  EXPECT_FALSE(wide.Plan(0, 1 << 20).has_value()) << "contiguous to a processor";
}

}  // namespace
}  // namespace telegrad
