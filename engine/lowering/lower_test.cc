// What lowering makes of a kernel for a CPU, counted in its program.
#include "engine/lowering/lower.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/test_product.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(Lower, LanesAreThoseOfTheWidestElementThatIsComputed) {
  const Target cpu = TestProcessorOfHalves();
  for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
    Budget budget;
    const auto program = Lower(TestProduct(96, 96, 96, dtype), cpu, "product", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_LE(AccumulatorBytes(*program), int64_t{cpu.vector_bytes} * cpu.vector_registers)
        << Name(dtype);
    for (UOp u : NodesOf(*program, Op::kMulAcc)) {
      EXPECT_LE(BytesOf(u.dtype(), NumElements(u.shape())), cpu.vector_bytes) << Name(dtype);
    }
  }
}

// Rows of 4,096 bytes all have their beginnings in one set of a first-level cache of eight ways: a
// tile walks along fewer, but not of rows that are a little shorter.
TEST(Lower, RowsThatEvictEachOtherAreNotOneTile) {
  const Target cpu = TestProcessorOfHalves();
  const auto rows = [&](int64_t folded) {
    Budget budget;
    const auto program =
        Lower(TestProduct(1024, 1024, folded, DType::kFloat32), cpu, "product", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    int count = 0;
    for (UOp u : program.ok() ? NodesOf(*program, Op::kLoad) : std::vector<UOp>{}) {
      count += u.shape().empty() && IsOfArgument(u, 1) ? 1 : 0;
    }
    return count;
  };
  EXPECT_LE(rows(1024), 6);
  EXPECT_LE(rows(2048), 6);
  EXPECT_GT(rows(1000), 6);
}

// Of seven rows of 12,288 bytes, whose lines fall onto one set of eight, one is lost now and then:
// less than lanes of 49 columns, which no vector divides, where no element may be computed twice.
TEST(Lower, RowsThatASetHoldsAreOneTileWhereNoOthersDivide) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(768)),
            j = g.Range(1, AxisType::kLoop, g.Index(49)),
            r = g.Range(2, AxisType::kReduce, g.Index(3072));
  const auto at = [&](int64_t slot, int64_t elements, UOp row, int64_t width, UOp column) {
    const UOp index = g.Make(Op::kAdd, {g.Make(Op::kMul, {row, g.Index(width)}), column});
    return g.Make(Op::kIndex, {g.Param(slot, DType::kFloat32, Shape{elements}), index});
  };
  const UOp product = g.Make(Op::kMul, {g.Make(Op::kLoad, {at(1, 3072 * 768, r, 768, i)}),
                                        g.Make(Op::kLoad, {at(2, 49 * 3072, j, 3072, r)})});
  const UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {product, r}, {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp to = at(0, 768 * 49, i, 49, j);
  const UOp store = g.Make(Op::kStore, {to, g.Make(Op::kAdd, {g.Make(Op::kLoad, {to}), sum})});
  const FrozenGraph kernel =
      Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i, j}, {})}));
  Target cpu = TestProcessorOfHalves();
  cpu.vector_rate = 2;
  cpu.cache_bytes = 2 << 20;
  const int32_t weights[] = {1};
  Budget budget;
  const auto program = Lower(kernel, cpu, "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_NE(program->moves.find("VECTORIZE r0 16"), std::string::npos) << program->moves;
  EXPECT_LE(program->flops, 2.0 * 768 * 49 * 3072 * 1.01) << program->moves;
}

// Two nests of one kernel: the first keeps rows, the second adds them up. No tile has rows of both
// matrices, though both read the other operand: nests in a loop are done once at a time, so the
// check of moves refuses it, and takes the list that is chosen.
TEST(Lower, NestsInALoopAreDoneOnceAtATime) {
  const auto graph = std::make_shared<Graph>();
  const absl::StatusOr<UOp> kernel = Parse(R"(%0 = param f32 [5120] slot=0
%1 = const i64 2
%2 = range i64 %1 id=0 type=loop
%3 = const i64 2560
%4 = mul i64 %2 %3
%5 = const i64 16
%6 = range i64 %5 id=1 type=loop
%7 = const i64 160
%8 = mul i64 %6 %7
%9 = add i64 %4 %8
%10 = range i64 %7 id=2 type=loop
%11 = add i64 %9 %10
%12 = index f32 %0 %11
%13 = param f32 [256] slot=1
%15 = const i64 128
%16 = mul i64 %2 %15
%17 = const i64 8
%18 = mul i64 %6 %17
%19 = add i64 %16 %18
%20 = range i64 %17 id=3 type=reduce
%21 = add i64 %19 %20
%22 = index f32 %13 %21
%23 = load f32 %22
%24 = param f32 [1280] slot=2
%27 = mul i64 %10 %17
%28 = add i64 %27 %20
%29 = index f32 %24 %28
%30 = load f32 %29
%31 = mul f32 %23 %30
%32 = reduce f32 %31 %20 kind=add axes=[]
%53 = store %12 %32
%54 = end %53 %10
%55 = end %54 %2 %6
%56 = param f32 [32] slot=3
%57 = mul i64 %2 %5
%58 = add i64 %57 %6
%59 = index f32 %56 %58
%60 = after f32 [5120] %0 %54
%61 = range i64 %7 id=6 type=reduce
%62 = add i64 %9 %61
%63 = index f32 %60 %62
%64 = load f32 %63
%65 = reduce f32 %64 %61 kind=add axes=[]
%66 = store %59 %65
%67 = end %66 %2 %6
%68 = sink %55 %67
)",
                                           graph.get());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  for (const int vector_bytes : {16, 32, 64}) {
    Target target;
    target.vector_bytes = vector_bytes;
    target.vector_registers = 16;
    target.threads = 2;
    Budget budget;
    const auto program = Lower(Freeze(*kernel), target, "sums", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_TRUE(Verify(*program).ok()) << vector_bytes << " " << Verify(*program);
    const auto given =
        Lower(Freeze(*kernel), target, "sums", &budget, nullptr, {.moves = program->moves});
    EXPECT_TRUE(given.ok()) << given.status() << "\n" << program->moves;
  }
}

// Rows stream past a panel of columns. Where the cache does not keep the panel meanwhile, the
// product is done in blocks of the reduction, of which it does; blocks of a panel that stays, or of
// one that only has to be read once more, would only move accumulators.
TEST(Lower, PanelsPastWhichRowsStreamStayInTheCacheInBlocks) {
  const int32_t weights[] = {2};
  const auto blocks = [&](int64_t m, int64_t n, int64_t k, int64_t cache) {
    Target cpu = TestProcessorOfHalves();
    cpu.cache_bytes = cache;
    Budget budget;
    const auto program = Lower(TestProduct(m, n, k, DType::kFloat32, ProductForm::kInPlace), cpu,
                               "product", &budget, nullptr, {.weights = weights});
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() && program->moves.find("BLOCK r2") != std::string::npos;
  };
  EXPECT_TRUE(blocks(128, 768, 3072, 2 << 20));
  EXPECT_FALSE(blocks(128, 768, 3072, 4 << 20));
  EXPECT_FALSE(blocks(128, 768, 768, 2 << 20));
  EXPECT_FALSE(blocks(128, 128, 3072, 2 << 20)) << "read twice";
  for (const int64_t size : {768, 1152, 1536}) {
    EXPECT_FALSE(blocks(size, size, size, 2 << 20)) << size << ": its panels stay";
  }
}

// Of each row of a matrix that is read once, as much as there are registers for is read at a time.
TEST(Lower, ARowIsReadInAsLongPartsAsRegistersHold) {
  Target cpu = TestProcessorOfHalves();
  cpu.cache_bytes = 2 << 20;
  Budget budget;
  const auto program = Lower(TestProduct(1, 768, 3072, DType::kFloat32), cpu, "product", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_NE(program->moves.find("UPCAST r1 24, VECTORIZE r1 16"), std::string::npos)
      << program->moves;
}

// Rows that lie pages apart are read in strips only where a core may lose the translations of so
// many pages, or where the parts of rows would cross the ends of pages.
TEST(Lower, RowsOfFewPagesAreReadInQuartersOfPages) {
  const auto moves = [](int64_t n, int64_t k) {
    Target cpu = TestProcessorOfHalves();
    cpu.cache_bytes = 2 << 20;
    Budget budget;
    const auto program = Lower(TestProduct(1, n, k, DType::kFloat32), cpu, "product", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? program->moves : "";
  };
  for (const int64_t n : {3072, 4096}) {
    const std::string quarters = moves(n, 768);
    EXPECT_NE(quarters.find("UPCAST r1 16, VECTORIZE r1 16"), std::string::npos) << quarters;
    EXPECT_EQ(quarters.find("BLOCK"), std::string::npos) << quarters;
  }
  EXPECT_NE(moves(4096, 4096).find("BLOCK"), std::string::npos) << "too many pages";
  EXPECT_NE(moves(3088, 768).find("BLOCK"), std::string::npos) << "across pages";
}

// Eight rows that lie whole pages apart have their lines in one set of the first-level cache: one
// of 12 ways keeps these beside what else is read, one of 8 does not.
TEST(Lower, RowsOfAProductFollowTheWaysOfTheFirstLevel) {
  const int32_t weights[] = {2};
  for (const int64_t ways : {8, 12}) {
    Target cpu = TestProcessorOfHalves();
    cpu.first_level_bytes = ways * 4096;
    Budget budget;
    const auto program = Lower(TestProduct(8, 4096, 4096, DType::kFloat32), cpu, "product", &budget,
                               nullptr, {.weights = weights});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->moves.find("UPCAST r0 8") != std::string::npos, ways == 12)
        << program->moves;
  }
}

// Of an operand that the worker's cache does not have, a tile reads two lines of each row at least:
// columns are lanes, though fewer loads would be needed if rows, of which the weight is packed,
// were.
TEST(Lower, OfWhatTheCacheDoesNotHaveLinesAreReadTogether) {
  const int32_t weights[] = {1};
  Budget budget;
  const auto program =
      Lower(TestProduct(64, 3136, 256, DType::kFloat32, ProductForm::kPlain),
            TestProcessorOfHalves(), "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->packings.size(), 1u);
  for (UOp u : NodesOf(*program, Op::kLoad)) {
    EXPECT_EQ(u.shape().empty(), IsOfArgument(u, program->packings[0].copy));
  }
}

// An element of the operand that has more copies is used by all sums that share it, one right after
// the other, whatever the order of the moves: then few of them are live at a time.
TEST(Lower, CopiesOfATileShareWhatTheLongerRangeReads) {
  for (const char* moves : {"UPCAST r1 14, UPCAST r0 2, VECTORIZE r0 16, THREAD r0, OUTER r0",
                            "UPCAST r0 2, UPCAST r1 14, VECTORIZE r0 16, THREAD r0, OUTER r0"}) {
    const int32_t weights[] = {1};
    Budget budget;
    const auto program = Lower(TestProduct(512, 196, 256, DType::kFloat32), TestProcessorOfHalves(),
                               "product", &budget, nullptr, {.weights = weights, .moves = moves});
    ASSERT_TRUE(program.ok()) << program.status();
    const std::vector<UOp> sums = NodesOf(*program, Op::kMulAcc);
    ASSERT_EQ(sums.size(), 28u);
    int changes = 0;  // of the element that all lanes share
    const auto shared = [](UOp sum) { return sum.src(sum.src(0).shape().empty() ? 0 : 1); };
    for (size_t i = 1; i < sums.size(); ++i)
      changes += shared(sums[i]) == shared(sums[i - 1]) ? 0 : 1;
    EXPECT_EQ(changes, 13) << moves;
  }
}

// Where no element may be computed twice, lanes that leave a remainder are gated, and a gated tile
// cannot be stored row by row: such lanes would be scattered one by one.
TEST(Lower, LanesOfWhatIsReplacedAreContiguousOrLeaveNoRemainder) {
  for (const auto& [rows, columns, reduced] : {std::tuple(15, 48, 8), std::tuple(100, 64, 32)}) {
    for (const int bytes : {32, 64}) {
      Target cpu = TestProcessorOfHalves();
      cpu.vector_bytes = bytes;
      cpu.vector_registers = bytes / 2;
      cpu.vector_rate = bytes == 64 ? 1 : 2;
      Budget budget;
      const auto program = Lower(
          TestProduct(rows, columns, reduced, DType::kFloat32, ProductForm::kInPlaceTransposed),
          cpu, "product", &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      for (UOp store : NodesOf(*program, Op::kStore)) {
        if (store.src(1).shape().empty() || !Memory(store.src(0)).is(Op::kParam)) continue;
        const std::vector<uint32_t> index = PostOrder(store.src(0).src(1));
        EXPECT_TRUE(std::ranges::none_of(index,
                                         [&](uint32_t id) {
                                           const UOp u = program->graph->at(id);
                                           return u.is(Op::kMul) && !u.shape().empty();
                                         }))
            << "lanes are rows apart: " << program->moves;
      }
    }
  }
}

// Tiles of 48 lanes leave an odd number of iterations of the shared loop, 11 for 512 columns, and
// two threads take as long for 12. A single thread has no such preference.
TEST(Lower, SharedLoopsDivideEvenlyAmongTheThreads) {
  for (const auto& [rows, columns, folded] :
       {std::array{49, 512, 4608}, {98, 512, 4608}, {147, 384, 4608}, {49, 768, 4608}}) {
    Budget budget;
    const auto program = Lower(TestProduct(rows, columns, folded, DType::kFloat32),
                               TestProcessorOfHalves(), "product", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->iterations % 2, 0) << rows << " " << columns << ": " << program->iterations;
  }
}

// Each thread brings what the shared loop does not divide into its own cache: an image of 1,225
// pixels with few outputs, 1.3 MB beside a weight of 64 KB, is divided by pixels, and one of 196
// pixels with 1,024 outputs, 0.2 MB beside 1 MB, by outputs.
TEST(Lower, ThreadsShareTheLoopOfTheLargerOperand) {
  Target cpu = TestProcessorOfHalves();
  cpu.cache_bytes = 2 << 20;
  const int32_t weights[] = {1};
  for (const auto& [outputs, pixels, shared] :
       {std::tuple(64, 1225, "THREAD r1"), {1024, 196, "THREAD r0"}}) {
    Budget budget;
    const auto program = Lower(TestProduct(outputs, pixels, 256, DType::kFloat32), cpu, "product",
                               &budget, nullptr, {.weights = weights});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->moves.find(shared), std::string::npos) << program->moves;
  }
}

// 30 elements are two vectors, of which the second one lies over the first.
TEST(Lower, BytesOfTilesThatOverlapCountOnce) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(30));
  const UOp from = g.Make(Op::kIndex, {g.Param(1, DType::kFloat32, Shape{30}), i});
  const UOp to = g.Make(
      Op::kIndex, {g.Param(0, DType::kFloat32, Shape{100}), g.Make(Op::kAdd, {i, g.Index(20)})});
  const UOp store = g.Make(Op::kStore, {to, g.Make(Op::kLoad, {from})});
  const FrozenGraph copy =
      Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i}, {})}));
  Budget budget;
  const auto program = Lower(copy, TestProcessorOfHalves(), "copy", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->bytes, 2 * 30 * 4);
}

// Elements that the program converts from bytes, in all iterations.
double Converted(const Program& program) {
  double converted = 0, iterations = 1;
  std::vector<double> outer;
  for (const uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    if (u.is(Op::kRange)) {
      outer.push_back(iterations);
      iterations *= static_cast<double>(u.src(0).vmax());
    } else if (u.is(Op::kEnd)) {
      iterations = outer.back();
      outer.pop_back();
    } else if (u.is(Op::kCast) && u.src(0).dtype() == DType::kUInt8) {
      converted += iterations * static_cast<double>(NumElements(u.shape()));
    }
  }
  return converted;
}

// The rows of a tile and those of a window of 3 x 3 are mostly the same ones: where both are
// unrolled, a row of bytes is converted for each column of the window, and not for all nine taps.
TEST(Lower, WhatAWindowReadsAgainIsConvertedOnce) {
  constexpr int64_t kChannels = 64, kRows = 56, kColumns = 64, kTaps = 3;
  Graph g;
  const UOp c = g.Range(0, AxisType::kLoop, g.Index(kChannels)),
            y = g.Range(1, AxisType::kLoop, g.Index(kRows)),
            x = g.Range(2, AxisType::kLoop, g.Index(kColumns));
  const UOp v = g.Range(3, AxisType::kReduce, g.Index(kTaps)),
            h = g.Range(4, AxisType::kReduce, g.Index(kTaps));
  const auto at = [&](UOp row, int64_t width, UOp column) {
    return g.Make(Op::kAdd, {g.Make(Op::kMul, {row, g.Index(width)}), column});
  };
  const auto beside = [&](UOp place, UOp tap) {
    return g.Make(Op::kAdd, {g.Make(Op::kAdd, {place, tap}), g.Index(-1)});
  };
  const auto inside = [&](UOp place, int64_t size) {
    return g.Make(Op::kAnd, {g.Make(Op::kCmpLt, {g.Index(-1), place}),
                             g.Make(Op::kCmpLt, {place, g.Index(size)})});
  };
  const UOp row = beside(y, v), column = beside(x, h);
  const UOp image = g.Param(1, DType::kUInt8, Shape{kChannels * kRows * kColumns});
  const UOp gate = g.Make(Op::kAnd, {inside(row, kRows), inside(column, kColumns)});
  const UOp byte = g.Make(
      Op::kLoad, {g.Make(Op::kIndex, {image, at(at(c, kRows, row), kColumns, column), gate})});
  const UOp window = g.Param(2, DType::kFloat32, Shape{kChannels * kTaps * kTaps});
  const UOp tap = g.Make(Op::kLoad, {g.Make(Op::kIndex, {window, at(at(c, kTaps, v), kTaps, h)})});
  const UOp whole =
      g.Make(Op::kAdd, {g.Make(Op::kCast, DType::kInt32, {byte}, {}), g.Const(DType::kInt32, -7)});
  const UOp term = g.Make(Op::kMul, {g.Make(Op::kCast, DType::kFloat32, {whole}, {}), tap});
  const UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {term, v, h}, {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp result = g.Param(0, DType::kFloat32, Shape{kChannels * kRows * kColumns});
  const UOp to = g.Make(Op::kIndex, {result, at(at(c, kRows, y), kColumns, x)});
  const UOp store = g.Make(Op::kStore, {to, sum});
  const FrozenGraph kernel =
      Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, c, y, x}, {})}));
  Budget budget;
  const auto program = Lower(kernel, TestProcessorOfHalves(), "window", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_LT(Converted(*program), 4.0 * kChannels * kRows * kColumns) << program->moves;
}

// x[row][places[i] mod n], where a gate says that a place is within the row: nothing is divided.
// Where it may be beyond, the remainder stays.
TEST(Lower, IndicesAreNotDividedByWhatTheirGatesSayIsAboveThem) {
  for (const int64_t bound : {12, 14, 20}) {
    constexpr int64_t kRow = 14, kPlaces = 64, kRows = 3;
    Graph g;
    const UOp row = g.Range(0, AxisType::kLoop, g.Index(kRows)),
              i = g.Range(1, AxisType::kLoop, g.Index(kPlaces));
    const UOp place =
        g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(2, DType::kInt64, Shape{kPlaces}), i})});
    const UOp gate = g.Make(Op::kAnd, {g.Make(Op::kCmpLt, {g.Index(-1), place}),
                                       g.Make(Op::kCmpLt, {place, g.Index(bound)})});
    const auto at = [&](int64_t width, UOp inside) {
      return g.Make(Op::kAdd, {g.Make(Op::kMul, {row, g.Index(width)}), inside});
    };
    const UOp index = at(kRow, g.Make(Op::kFloorMod, {place, g.Index(kRow)}));
    const UOp from =
        g.Make(Op::kIndex, {g.Param(1, DType::kFloat32, Shape{kRows * kRow}), index, gate});
    const UOp to =
        g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{kRows * kPlaces}), at(kPlaces, i)});
    const UOp store = g.Make(Op::kStore, {to, g.Make(Op::kLoad, {from})});
    const FrozenGraph gather =
        Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, row, i}, {})}));
    Budget budget;
    const auto program = Lower(gather, TestProcessorOfHalves(), "gather", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(NodesOf(*program, Op::kFloorMod).empty(), bound <= kRow) << bound;
  }
}

}  // namespace
}  // namespace telegrad
