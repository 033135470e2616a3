// What lowering makes of a kernel for a CPU, counted in its program.
#include "engine/lowering/lower.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/ranges.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

Target Cpu() {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  target.converts = {DType::kFloat16};
  return target;
}

enum class Form {
  kPlain,
  kMasked,             // only elements of `b` with j + k below n + k - 1 count
  kInPlace,            // added to what `c` has
  kInPlaceTransposed,  // the same, with b[j, k] in place of b[k, j]
};

// c[i, j] = sum over k of a[i, k] * b[k, j], as the schedule makes it; computed in f32.
FrozenGraph Product(int64_t m, int64_t n, int64_t k, DType dtype, Form form = Form::kPlain) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(m)),
            j = g.Range(1, AxisType::kLoop, g.Index(n));
  const UOp r = g.Range(2, AxisType::kReduce, g.Index(k));
  const auto at = [&](UOp row, int64_t width, UOp column) {
    return g.Make(Op::kAdd, {g.Make(Op::kMul, {row, g.Index(width)}), column});
  };
  const bool transposed = form == Form::kInPlaceTransposed;
  const UOp inside =
      g.Make(Op::kCmpLt, DType::kBool, {g.Make(Op::kAdd, {j, r}), g.Index(n + k - 2)}, {});
  const auto load = [&](int64_t slot, int64_t elements, UOp index) {
    const UOp memory = g.Param(slot, dtype, Shape{elements});
    const UOp from = slot == 2 && form == Form::kMasked
                         ? g.Make(Op::kIndex, {memory, index, inside})
                         : g.Make(Op::kIndex, {memory, index});
    return g.Make(Op::kCast, DType::kFloat32, {g.Make(Op::kLoad, {from})});
  };
  const UOp product = g.Make(Op::kMul, {load(1, m * k, at(i, k, r)),
                                        load(2, k * n, transposed ? at(j, k, r) : at(r, n, j))});
  UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {product, r}, {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{m * n}), at(i, n, j)});
  if (form == Form::kInPlace || transposed) sum = g.Make(Op::kAdd, {g.Make(Op::kLoad, {to}), sum});
  const UOp store = g.Make(Op::kStore, {to, sum});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i, j}, {})}));
}

std::vector<UOp> Of(const Program& program, Op op) {
  std::vector<UOp> out;
  for (uint32_t id : program.order) {
    if (program.graph->op(id) == op) out.push_back(program.graph->at(id));
  }
  return out;
}

bool IsOfArgument(UOp access, int64_t slot) {
  const UOp memory = Memory(access.src(0));
  return memory.is(Op::kParam) && memory.slot() == slot;
}

// The registers that the accumulators of the innermost reduction take.
int64_t AccumulatorBytes(const Program& program) {
  int64_t bytes = 0;
  for (UOp buffer : Of(program, Op::kBuffer)) {
    if (buffer.elements() <= 64) bytes += BytesOf(buffer.dtype(), buffer.elements());
  }
  return bytes;
}

TEST(Lower, LanesAreThoseOfTheWidestElementThatIsComputed) {
  const Target cpu = Cpu();
  for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
    Budget budget;
    const auto program = Lower(Product(96, 96, 96, dtype), cpu, "product", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_LE(AccumulatorBytes(*program), int64_t{cpu.vector_bytes} * cpu.vector_registers)
        << Name(dtype);
    for (UOp u : Of(*program, Op::kMulAcc)) {
      EXPECT_LE(BytesOf(u.dtype(), NumElements(u.shape())), cpu.vector_bytes) << Name(dtype);
    }
  }
}

// Rows of 4,096 bytes all have their beginnings in one set of a first-level cache of eight ways: a
// tile walks along fewer, but not of rows that are a little shorter.
TEST(Lower, RowsThatEvictEachOtherAreNotOneTile) {
  const Target cpu = Cpu();
  const auto rows = [&](int64_t folded) {
    Budget budget;
    const auto program =
        Lower(Product(1024, 1024, folded, DType::kFloat32), cpu, "product", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    int count = 0;
    for (UOp u : program.ok() ? Of(*program, Op::kLoad) : std::vector<UOp>{}) {
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
  Target cpu = Cpu();
  cpu.vector_rate = 2;
  cpu.cache_bytes = 2 << 20;
  const int32_t weights[] = {1};
  Budget budget;
  const auto program = Lower(kernel, cpu, "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_NE(program->moves.find("VECTORIZE r0 16"), std::string::npos) << program->moves;
  EXPECT_LE(program->flops, 2.0 * 768 * 49 * 3072 * 1.01) << program->moves;
}

// The copy is in the order of the tile, as large as the weight, and no panel is copied in the
// program.
TEST(Lower, WeightsAreReadFromACopyThatIsKept) {
  const int32_t weights[] = {2};
  Budget budget;
  const auto without = Lower(Product(96, 384, 256, DType::kFloat32), Cpu(), "product", &budget);
  const auto with = Lower(Product(96, 384, 256, DType::kFloat32), Cpu(), "product", &budget,
                          nullptr, {.weights = weights});
  ASSERT_TRUE(without.ok() && with.ok()) << without.status() << with.status();
  EXPECT_TRUE(without->packings.empty());
  ASSERT_EQ(with->packings.size(), 1u);
  const Program::Packing& packing = with->packings[0];
  EXPECT_EQ(packing.source, 2);
  ASSERT_EQ(packing.copy, 3);
  ASSERT_EQ(with->arguments.size(), 4u);
  EXPECT_EQ(with->arguments[3].elements, 384 * 256);
  EXPECT_TRUE(with->arguments[3].read && !with->arguments[2].read);
  EXPECT_EQ(AccumulatorBytes(*with), [&] {
    int64_t bytes = 0;
    for (UOp buffer : Of(*with, Op::kBuffer)) {
      bytes += BytesOf(buffer.dtype(), buffer.elements());
    }
    return bytes;
  }()) << "all private memory is accumulators";
  const auto packs = Lower(packing.kernel, Cpu(), "packing", &budget);
  ASSERT_TRUE(packs.ok()) << packs.status();
  EXPECT_EQ(packs->bytes, 2 * 4 * 384 * 256);
}

// The rows of a tile are neighbours in the copy of a left operand. Of two operands that no kernel
// writes, the right one is taken for the weight. Vectors do not divide the rows, which else may be
// lanes.
TEST(Lower, RowsOfAWeightAreNeighboursInItsCopy) {
  const auto lower = [](std::span<const int32_t> weights) {
    Budget budget;
    auto program = Lower(Product(390, 1024, 384, DType::kFloat32), Cpu(), "product", &budget,
                         nullptr, {.weights = weights});
    EXPECT_TRUE(program.ok()) << program.status();
    return program.value_or(Program{});
  };
  const int32_t left[] = {1}, both[] = {1, 2};
  const Program rows = lower(left), columns = lower(both);
  ASSERT_EQ(columns.packings.size(), 1u);
  EXPECT_EQ(columns.packings[0].source, 2);
  ASSERT_EQ(rows.packings.size(), 1u);
  EXPECT_EQ(rows.packings[0].source, 1);
  std::set<int64_t> places;  // beyond the first one, of a tile's rows
  for (UOp u : Of(rows, Op::kLoad)) {
    if (!IsOfArgument(u, rows.packings[0].copy)) continue;
    const UOp index = u.src(0).src(1);
    EXPECT_TRUE(u.shape().empty());
    places.insert(index.is(Op::kAdd) && index.src(1).is_const() ? index.src(1).const_word() : 0);
  }
  EXPECT_GE(places.size(), 4u);
  EXPECT_EQ(*places.rbegin(), std::ssize(places) - 1);
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

// The masked columns are copied once for all rows: reading the packed rows again for each tile of
// columns costs less than copying the columns again for each tile of rows. The rows are no lanes,
// because vectors do not divide them and no element may be computed twice.
TEST(Lower, PackedRowsAreReadAgainSoThatColumnsAreCopiedOnce) {
  Target cpu = Cpu();
  cpu.vector_bytes = 32;
  cpu.vector_registers = 16;
  cpu.cache_bytes = 512 << 10;
  const int32_t weights[] = {1};
  Budget budget;
  const auto program = Lower(Product(2044, 49, 512, DType::kFloat32, Form::kInPlace), cpu,
                             "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->packings.size(), 1u);
  EXPECT_LE(program->iterations, 7) << "threads share tiles of columns";
}

// Rows stream past a panel of columns. Where the cache does not keep the panel meanwhile, the
// product is done in blocks of the reduction, of which it does; blocks of a panel that stays, or of
// one that only has to be read once more, would only move accumulators.
TEST(Lower, PanelsPastWhichRowsStreamStayInTheCacheInBlocks) {
  const int32_t weights[] = {2};
  const auto blocks = [&](int64_t m, int64_t n, int64_t k, int64_t cache) {
    Target cpu = Cpu();
    cpu.cache_bytes = cache;
    Budget budget;
    const auto program = Lower(Product(m, n, k, DType::kFloat32, Form::kInPlace), cpu, "product",
                               &budget, nullptr, {.weights = weights});
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
  Target cpu = Cpu();
  cpu.cache_bytes = 2 << 20;
  Budget budget;
  const auto program = Lower(Product(1, 768, 3072, DType::kFloat32), cpu, "product", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_NE(program->moves.find("UPCAST r1 24, VECTORIZE r1 16"), std::string::npos)
      << program->moves;
}

// Rows that lie pages apart are read in strips only where a core may lose the translations of so
// many pages, or where the parts of rows would cross the ends of pages.
TEST(Lower, RowsOfFewPagesAreReadInQuartersOfPages) {
  const auto moves = [](int64_t n, int64_t k) {
    Target cpu = Cpu();
    cpu.cache_bytes = 2 << 20;
    Budget budget;
    const auto program = Lower(Product(1, n, k, DType::kFloat32), cpu, "product", &budget);
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
    Target cpu = Cpu();
    cpu.first_level_bytes = ways * 4096;
    Budget budget;
    const auto program = Lower(Product(8, 4096, 4096, DType::kFloat32), cpu, "product", &budget,
                               nullptr, {.weights = weights});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->moves.find("UPCAST r0 8") != std::string::npos, ways == 12)
        << program->moves;
  }
}

// The first-level cache finds a line by its place in a page: of rows that lie 6 KiB apart it keeps
// a few, however few bytes a panel of them has. A weight of such rows is packed.
TEST(Lower, APanelOfRowsOnTheSameSetsIsPacked) {
  Target cpu = Cpu();
  cpu.cache_bytes = 2 << 20;
  const int32_t weights[] = {2};
  for (const int64_t columns : {1536, 1552}) {
    Budget budget;
    const auto lowered = Lower(
        Product(1536, columns, 1536, DType::kFloat32, Form::kInPlace), cpu, "product", &budget,
        nullptr,
        {.weights = weights,
         .moves = "UPCAST r1 2, UPCAST r0 12, VECTORIZE r1 16, OUTER r1, BLOCK r2 192, OUTER r0"});
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->packings.size(), columns == 1536 ? 1u : 0u) << columns;
  }
}

// Of an operand that the worker's cache does not have, a tile reads two lines of each row at least:
// columns are lanes, though fewer loads would be needed if rows, of which the weight is packed,
// were.
TEST(Lower, OfWhatTheCacheDoesNotHaveLinesAreReadTogether) {
  const int32_t weights[] = {1};
  Budget budget;
  const auto program = Lower(Product(64, 3136, 256, DType::kFloat32, Form::kPlain), Cpu(),
                             "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->packings.size(), 1u);
  for (UOp u : Of(*program, Op::kLoad)) {
    EXPECT_EQ(u.shape().empty(), IsOfArgument(u, program->packings[0].copy));
  }
}

// A weight's rows are lanes where columns would overhang: 49 columns are 4 vectors of 16, of which
// the last one has a single column. Units that are half as wide as the registers make it count.
TEST(Lower, RowsOfAWeightAreLanesWhereColumnsOverhang) {
  const int32_t weights[] = {1};
  Target cpu = Cpu();
  cpu.vector_rate = 1;
  for (const Form form : {Form::kPlain, Form::kInPlace}) {
    Budget budget;
    const auto program = Lower(Product(512, 49, 256, DType::kFloat32, form), cpu, "product",
                               &budget, nullptr, {.weights = weights});
    ASSERT_TRUE(program.ok()) << program.status();
    ASSERT_EQ(program->packings.size(), 1u);
    EXPECT_EQ(program->packings[0].source, 1);
    for (UOp buffer : Of(*program, Op::kBuffer)) {
      EXPECT_LE(buffer.elements(), 16) << "accumulators alone, no copies";
    }
    EXPECT_LE(program->flops, 2.0 * 512 * 49 * 256 * 1.05) << "hardly a lane is computed in vain";
  }
}

// An element of the operand that has more copies is used by all sums that share it, one right after
// the other, whatever the order of the moves: then few of them are live at a time.
TEST(Lower, CopiesOfATileShareWhatTheLongerRangeReads) {
  for (const char* moves : {"UPCAST r1 14, UPCAST r0 2, VECTORIZE r0 16, THREAD r0, OUTER r0",
                            "UPCAST r0 2, UPCAST r1 14, VECTORIZE r0 16, THREAD r0, OUTER r0"}) {
    const int32_t weights[] = {1};
    Budget budget;
    const auto program = Lower(Product(512, 196, 256, DType::kFloat32), Cpu(), "product", &budget,
                               nullptr, {.weights = weights, .moves = moves});
    ASSERT_TRUE(program.ok()) << program.status();
    const std::vector<UOp> sums = Of(*program, Op::kMulAcc);
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
      Target cpu = Cpu();
      cpu.vector_bytes = bytes;
      cpu.vector_registers = bytes / 2;
      cpu.vector_rate = bytes == 64 ? 1 : 2;
      Budget budget;
      const auto program =
          Lower(Product(rows, columns, reduced, DType::kFloat32, Form::kInPlaceTransposed), cpu,
                "product", &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      for (UOp store : Of(*program, Op::kStore)) {
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
    const auto program =
        Lower(Product(rows, columns, folded, DType::kFloat32), Cpu(), "product", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->iterations % 2, 0) << rows << " " << columns << ": " << program->iterations;
  }
}

// Each thread brings what the shared loop does not divide into its own cache: an image of 1,225
// pixels with few outputs, 1.3 MB beside a weight of 64 KB, is divided by pixels, and one of 196
// pixels with 1,024 outputs, 0.2 MB beside 1 MB, by outputs.
TEST(Lower, ThreadsShareTheLoopOfTheLargerOperand) {
  Target cpu = Cpu();
  cpu.cache_bytes = 2 << 20;
  const int32_t weights[] = {1};
  for (const auto& [outputs, pixels, shared] :
       {std::tuple(64, 1225, "THREAD r1"), {1024, 196, "THREAD r0"}}) {
    Budget budget;
    const auto program = Lower(Product(outputs, pixels, 256, DType::kFloat32), cpu, "product",
                               &budget, nullptr, {.weights = weights});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(program->moves.find(shared), std::string::npos) << program->moves;
  }
}

// All rows are one tile, so the copy is not read again in a run, but it is in the next one; where
// it lies, the weight is read in short pieces of far rows.
TEST(Lower, WeightsOfAsManyRowsAsATileHasAreCopied) {
  const int32_t weights[] = {2};
  Budget budget;
  const auto program = Lower(Product(8, 1024, 1024, DType::kFloat32), Cpu(), "product", &budget,
                             nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->packings.size(), 1u);
}

// Masks are a matter of copying: what the tile multiplies is read as whole vectors from private
// memory, several of each row. A tile that the loops do not divide has masks, too, where no element
// may be computed twice.
TEST(Lower, MaskedOperandsAreCopiedFirst) {
  for (const Form form : {Form::kMasked, Form::kInPlace}) {
    Budget budget;
    const auto program =
        Lower(Product(256, 220, 512, DType::kFloat32, form), Cpu(), "product", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<UOp> operands;
    for (UOp u : Of(*program, Op::kMulAcc)) {
      for (int i = 0; i < 2; ++i) {
        if (u.src(i).is(Op::kLoad) && !u.src(i).shape().empty()) operands.push_back(u.src(i));
      }
    }
    ASSERT_FALSE(operands.empty());
    int64_t distinct = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      EXPECT_EQ(Memory(operands[i].src(0)).op(), Op::kBuffer);
      EXPECT_EQ(operands[i].src(0).num_src(), 2) << "a gate";
      distinct +=
          std::find(operands.begin(), operands.begin() + i, operands[i]) == operands.begin() + i
              ? 1
              : 0;
    }
    EXPECT_GE(distinct, 2) << "vectors of a row";
  }
}

// Few rows read the weight where it lies: a copy would be read as often as it is made.
// y[o, p, q] = sum over c, i, j of x[c, 8 p + i, 8 q + j] * w[o, c, i, j]: the patches of an image,
// which no kernel writes either. The weight is the one that is packed.
TEST(Lower, AnImageIsNoWeight) {
  constexpr int64_t kOut = 64, kChannels = 3, kPatch = 8, kSide = 14, kRow = kPatch * kSide;
  Graph g;
  int64_t ranges = 0;
  const auto range = [&](int64_t n, AxisType type) { return g.Range(ranges++, type, g.Index(n)); };
  const UOp o = range(kOut, AxisType::kLoop), p = range(kSide, AxisType::kLoop),
            q = range(kSide, AxisType::kLoop), c = range(kChannels, AxisType::kReduce),
            i = range(kPatch, AxisType::kReduce), j = range(kPatch, AxisType::kReduce);
  const auto index = [&](std::initializer_list<std::pair<UOp, int64_t>> terms) {
    UOp sum = g.Index(0);
    for (const auto& [r, step] : terms) {
      sum = g.Make(Op::kAdd, {sum, g.Make(Op::kMul, {r, g.Index(step)})});
    }
    return sum;
  };
  const auto at = [&](int64_t slot, int64_t elements, UOp place) {
    return g.Make(Op::kIndex, {g.Param(slot, DType::kFloat32, Shape{elements}), place});
  };
  const UOp x = at(1, kChannels * kRow * kRow,
                   index({{c, kRow * kRow}, {p, kPatch * kRow}, {i, kRow}, {q, kPatch}, {j, 1}}));
  const int64_t taps = kPatch * kPatch;
  const UOp w = at(2, kOut * kChannels * taps,
                   index({{o, kChannels * taps}, {c, taps}, {i, kPatch}, {j, 1}}));
  const UOp product = g.Make(Op::kMul, {g.Make(Op::kLoad, {x}), g.Make(Op::kLoad, {w})});
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {product, c, i, j},
                         {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp to = at(0, kOut * kSide * kSide, index({{o, kSide * kSide}, {p, kSide}, {q, 1}}));
  const UOp sink = g.Make(
      Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {g.Make(Op::kStore, {to, sum}), o, p, q}, {})});
  ASSERT_TRUE(g.status().ok()) << g.status();
  const int32_t weights[] = {1, 2};
  Budget budget;
  const auto program = Lower(Freeze(sink), Cpu(), "k", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->packings.size(), 1u) << program->moves;
  EXPECT_EQ(program->packings[0].source, 2);
  EXPECT_NE(program->moves.find("VECTORIZE r0 16"), std::string::npos) << program->moves;
}

TEST(Lower, WeightsOfFewRowsAreNotCopied) {
  const int32_t weights[] = {2};
  Budget budget;
  const auto program = Lower(Product(2, 1024, 1024, DType::kFloat32), Cpu(), "product", &budget,
                             nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->packings.empty());
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
  const auto program = Lower(copy, Cpu(), "copy", &budget);
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
  const auto program = Lower(kernel, Cpu(), "window", &budget);
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
    const auto program = Lower(gather, Cpu(), "gather", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(Of(*program, Op::kFloorMod).empty(), bound <= kRow) << bound;
  }
}

}  // namespace
}  // namespace telegrad
