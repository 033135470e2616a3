// Which schedules may have temporaries that hold what others left there.
#include "engine/execution/written_first.h"

#include <gtest/gtest.h>

#include "engine/execution/execution_test.h"
#include "engine/execution/temporaries.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

class WrittenFirst : public ExecutionTest {
 protected:
  Schedule Scheduled() {
    Budget budget;
    return *ScheduleGraph(ThroughTemporary(96).root(), &budget);
  }

  using Index = std::function<UOp(Graph&, UOp i, UOp j)>;
  static UOp Full(Graph& g, UOp i, UOp j) {
    return g.Make(Op::kAdd, {g.Make(Op::kMul, {i, g.Index(6)}), j});
  }

  // Adds a kernel that loads `index` of the temporary, for 4 x 6 of the ranges.
  static void Read(const Index& index, Schedule* schedule, int64_t elements = 24) {
    Graph g;
    const UOp i = g.Range(0, AxisType::kLoop, g.Index(4)),
              j = g.Range(1, AxisType::kLoop, g.Index(6));
    const UOp load =
        g.Make(Op::kLoad, {g.Make(Op::kIndex, {Floats(g, 0, elements), index(g, i, j)})});
    const UOp to = g.Make(Op::kIndex, {Floats(g, 1, 24), Full(g, i, j)});
    const UOp sink = g.Make(Op::kSink, {g.Make(Op::kEnd, {g.Make(Op::kStore, {to, load}), i, j})});
    EXPECT_TRUE(g.status().ok()) << g.status();
    schedule->kernels.push_back({});
    schedule->kernels.back().graph = Freeze(sink);
    schedule->kernels.back().arguments = {{BufferRef::Kind::kTemporary, 0},
                                          {BufferRef::Kind::kSlot, 0}};
  }

  // A kernel that stores 0 to `index` of a temporary of so many floats, for 4 x 6 of the ranges,
  // and one that loads.
  Schedule Storing(const Index& index, bool gated = false, const Index& read = Full,
                   int64_t elements = 24) {
    Graph g;
    const UOp i = g.Range(0, AxisType::kLoop, g.Index(4)),
              j = g.Range(1, AxisType::kLoop, g.Index(6));
    const UOp param = Floats(g, 0, elements), at = index(g, i, j);
    const UOp address = gated ? g.Make(Op::kIndex, {param, at, g.Make(Op::kCmpLt, {i, j})})
                              : g.Make(Op::kIndex, {param, at});
    const UOp store = g.Make(Op::kStore, {address, g.ConstFloat(DType::kFloat32, 0)});
    const UOp sink = g.Make(Op::kSink, {g.Make(Op::kEnd, {store, i, j})});
    EXPECT_TRUE(g.status().ok()) << g.status();
    Schedule out;
    out.kernels.push_back({});
    out.kernels[0].graph = Freeze(sink);
    out.kernels[0].arguments = {{BufferRef::Kind::kTemporary, 0}};
    out.temporaries = {{4 * elements, 0}};
    Read(read, &out, elements);
    return out;
  }
};

UOp Sum(Graph& g, UOp x, int64_t scale, UOp y) {
  return g.Make(Op::kAdd, {g.Make(Op::kMul, {x, g.Index(scale)}), y});
}

TEST_F(WrittenFirst, AKernelThatFillsItsTemporary) {
  EXPECT_TRUE(WritesTemporariesFirst(Scheduled()));
  EXPECT_TRUE(
      WritesTemporariesFirst(Storing([](Graph& g, UOp i, UOp j) { return Sum(g, i, 6, j); })));
  EXPECT_TRUE(
      WritesTemporariesFirst(Storing([](Graph& g, UOp i, UOp j) { return Sum(g, j, 4, i); })));
}

TEST_F(WrittenFirst, WhatIsReadBeforeItIsWritten) {
  Schedule schedule = Scheduled();
  ASSERT_EQ(schedule.kernels.size(), 2u);
  std::swap(schedule.kernels[0], schedule.kernels[1]);
  EXPECT_FALSE(WritesTemporariesFirst(schedule));
}

TEST_F(WrittenFirst, WhatIsWrittenInPart) {
  const auto holes = [](Graph& g, UOp i, UOp j) { return Sum(g, i, 5, j); };
  const auto row = [](Graph&, UOp, UOp j) { return j; };
  const auto shifted = [](Graph& g, UOp i, UOp j) {
    return Sum(g, i, 6, Sum(g, j, 1, g.Index(1)));
  };
  const auto full = [](Graph& g, UOp i, UOp j) { return Sum(g, i, 6, j); };
  EXPECT_FALSE(WritesTemporariesFirst(Storing(holes)));
  EXPECT_FALSE(WritesTemporariesFirst(Storing(row)));
  EXPECT_FALSE(WritesTemporariesFirst(Storing(shifted)));
  EXPECT_FALSE(WritesTemporariesFirst(Storing(full, /*gated=*/true)));
}

// Rows of 8 of which 6 are written, as where a gap spreads rows over a cache.
TEST_F(WrittenFirst, NobodyReadsTheGaps) {
  const auto rows = [](Graph& g, UOp i, UOp j) { return Sum(g, i, 8, j); };
  const auto next = [](Graph& g, UOp i, UOp j) { return Sum(g, i, 8, Sum(g, j, 1, g.Index(1))); };
  const auto chosen = [](Graph& g, UOp i, UOp j) {
    return Sum(g, i, 8, g.Make(Op::kFloorMod, {j, g.Index(2)}));
  };
  EXPECT_TRUE(WritesTemporariesFirst(Storing(rows, false, rows, 32)));
  EXPECT_FALSE(WritesTemporariesFirst(Storing(rows, false, next, 32)));
  EXPECT_FALSE(WritesTemporariesFirst(Storing(rows, false, Full, 32)));
  EXPECT_FALSE(WritesTemporariesFirst(Storing(rows, false, chosen, 32))) << "no sum of ranges";
  EXPECT_FALSE(WritesTemporariesFirst(Storing(rows, true, rows, 32)));
}

// An argument that begins in the middle of a temporary reads from there on.
TEST_F(WrittenFirst, NobodyReadsTheGapsFromAnywhere) {
  const auto rows = [](Graph& g, UOp i, UOp j) { return Sum(g, i, 10, j); };
  const auto row = [](Graph&, UOp, UOp j) { return j; };
  Schedule schedule = Storing(rows, false, row, 40);
  EXPECT_TRUE(WritesTemporariesFirst(schedule));
  schedule.kernels[1].arguments[0].offset = 64;  // elements 16 to 19 are a gap
  EXPECT_FALSE(WritesTemporariesFirst(schedule));
  schedule.kernels[1].arguments[0].offset = 80;
  EXPECT_TRUE(WritesTemporariesFirst(schedule));
}

// What is filled may be less than the temporary.
TEST_F(WrittenFirst, NobodyReadsBehindWhatIsFilled) {
  const auto shifted = [](Graph& g, UOp i, UOp j) {
    return Sum(g, i, 6, Sum(g, j, 1, g.Index(8)));
  };
  Schedule schedule = Storing(Full);
  EXPECT_TRUE(WritesTemporariesFirst(schedule));
  schedule.kernels.resize(1);
  schedule.temporaries = {{128, 0}};
  Read(shifted, &schedule, 32);
  EXPECT_FALSE(WritesTemporariesFirst(schedule));
}

// Two STOREs that fill 3 rows of 8 in tiles of 2 rows, of which the last has one.
TEST_F(WrittenFirst, WhatSeveralStoresWriteTogether) {
  const auto filled = [](int64_t second_offset, int64_t rows) {
    Graph g;
    const UOp tile = g.Range(0, AxisType::kLoop, g.Index(2)),
              column = g.Range(1, AxisType::kLoop, g.Index(8));
    const UOp param = Floats(g, 0, 24), at = Sum(g, tile, 16, column);
    const UOp row = Sum(g, tile, 2, g.Index(1));
    const UOp second = g.Make(Op::kAdd, {at, g.Index(second_offset)});
    const UOp value = g.ConstFloat(DType::kFloat32, 0);
    const auto nest = [&](UOp address) {
      return g.Make(Op::kEnd, {g.Make(Op::kStore, {address, value}), tile, column});
    };
    const UOp gate = g.Make(Op::kCmpLt, {row, g.Index(rows)});
    const UOp sink = g.Make(Op::kSink, {nest(g.Make(Op::kIndex, {param, at})),
                                        nest(g.Make(Op::kIndex, {param, second, gate}))});
    EXPECT_TRUE(g.status().ok()) << g.status();
    Schedule out;
    out.kernels.push_back({});
    out.kernels[0].graph = Freeze(sink);
    out.kernels[0].arguments = {{BufferRef::Kind::kTemporary, 0}};
    out.temporaries = {{96, 0}};
    Read(Full, &out);
    return WritesTemporariesFirst(out);
  };
  EXPECT_TRUE(filled(8, 3));
  EXPECT_FALSE(filled(8, 1)) << "the second store never runs";
  EXPECT_FALSE(filled(9, 3)) << "an element between the rows";
  EXPECT_FALSE(filled(0, 3)) << "a row is written twice, and one never";
}

// A row of argument 0 is filled and read again, for argument 1, in the same iteration of the rows.
class Staged : public ExecutionTest {
 protected:
  using Index = std::function<UOp(Graph&, UOp row, UOp column)>;

  static bool Proved(const Index& read, bool ordered = true) {
    Graph g;
    const UOp row = g.Range(0, AxisType::kLoop, g.Index(4));
    const auto nest = [&](int64_t slot, UOp column, UOp value) {
      const UOp at = Sum(g, row, 6, column);
      const UOp store = g.Make(Op::kStore, {g.Make(Op::kIndex, {Floats(g, slot, 24), at}), value});
      return g.Make(Op::kEnd, {store, column});
    };
    const UOp j = g.Range(1, AxisType::kLoop, g.Index(6));
    const UOp k = g.Range(2, AxisType::kLoop, g.Index(6));
    const UOp filled = nest(0, j, g.ConstFloat(DType::kFloat32, 1));
    const UOp staged = ordered ? g.Make(Op::kAfter, {Floats(g, 0, 24), filled}) : Floats(g, 0, 24);
    const UOp load = g.Make(Op::kLoad, {g.Make(Op::kIndex, {staged, read(g, row, k)})});
    const UOp sink = g.Make(
        Op::kSink, {g.Make(Op::kEnd, {filled, row}), g.Make(Op::kEnd, {nest(1, k, load), row})});
    EXPECT_TRUE(g.status().ok()) << g.status();
    Schedule out;
    out.kernels.push_back({});
    out.kernels[0].graph = Freeze(sink);
    out.kernels[0].arguments = {{BufferRef::Kind::kTemporary, 0}, {BufferRef::Kind::kSlot, 0}};
    out.temporaries = {{96, 0}};
    return WritesTemporariesFirst(out);
  }
};

TEST_F(Staged, ReadsItsOwnRowOnly) {
  const auto own = [](Graph& g, UOp row, UOp column) { return Sum(g, row, 6, column); };
  const auto backwards = [](Graph& g, UOp row, UOp column) {
    return Sum(g, row, 6, g.Make(Op::kSub, {g.Index(5), column}));
  };
  const auto column_of = [](Graph& g, UOp row, UOp column) { return Sum(g, column, 4, row); };
  const auto first_row = [](Graph&, UOp, UOp column) { return column; };
  const auto next_row = [](Graph& g, UOp row, UOp column) {
    return g.Make(Op::kFloorMod, {Sum(g, row, 6, Sum(g, column, 1, g.Index(6))), g.Index(24)});
  };
  const auto over = [](Graph& g, UOp row, UOp column) {
    return Sum(g, row, 6, Sum(g, column, 1, g.Index(1)));
  };
  EXPECT_TRUE(Proved(own));
  EXPECT_TRUE(Proved(backwards));
  EXPECT_FALSE(Proved(own, /*ordered=*/false));
  EXPECT_FALSE(Proved(column_of));
  EXPECT_FALSE(Proved(first_row));
  EXPECT_FALSE(Proved(next_row));
  EXPECT_FALSE(Proved(over));
}

// The device zeroes what one that is not proved gets, and the others see what was there.
TEST_F(WrittenFirst, DecidesWhichMemoryARunGets) {
  Temporaries temporaries(device_.get());
  {
    const auto shared = temporaries.Shared(64);
    ASSERT_TRUE(shared.ok());
    std::memset(shared->memory->host(), 0xcd, 64);
  }
  const auto bytes = [](const absl::StatusOr<BufferView>& view) {
    const auto* first = static_cast<const uint8_t*>(view->memory->host());
    return std::vector<uint8_t>(first, first + view->length);
  };
  EXPECT_EQ(bytes(temporaries.Shared(64)), std::vector<uint8_t>(64, 0xcd));
  EXPECT_EQ(bytes(temporaries.Zeroed(64)), std::vector<uint8_t>(64, 0));
}

}  // namespace
}  // namespace telegrad
