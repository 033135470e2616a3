// Which operands lowering copies for a CPU, where to and in which order: packed weights that stay
// from run to run, and panels within a program.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/test_product.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

// The copy is in the order of the tile, as large as the weight, and no panel is copied in the
// program.
TEST(LowerCopies, WeightsAreReadFromACopyThatIsKept) {
  const int32_t weights[] = {2};
  Budget budget;
  const auto without = Lower(TestProduct(96, 384, 256, DType::kFloat32), TestProcessorOfHalves(),
                             "product", &budget);
  const auto with = Lower(TestProduct(96, 384, 256, DType::kFloat32), TestProcessorOfHalves(),
                          "product", &budget, nullptr, {.weights = weights});
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
    for (UOp buffer : NodesOf(*with, Op::kBuffer)) {
      bytes += BytesOf(buffer.dtype(), buffer.elements());
    }
    return bytes;
  }()) << "all private memory is accumulators";
  const auto packs = Lower(packing.kernel, TestProcessorOfHalves(), "packing", &budget);
  ASSERT_TRUE(packs.ok()) << packs.status();
  EXPECT_EQ(packs->bytes, 2 * 4 * 384 * 256);
}

// The rows of a tile are neighbours in the copy of a left operand. Of two operands that no kernel
// writes, the right one is taken for the weight. Vectors do not divide the rows, which else may be
// lanes.
TEST(LowerCopies, RowsOfAWeightAreNeighboursInItsCopy) {
  const auto lower = [](std::span<const int32_t> weights) {
    Budget budget;
    auto program = Lower(TestProduct(390, 1024, 384, DType::kFloat32), TestProcessorOfHalves(),
                         "product", &budget, nullptr, {.weights = weights});
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
  for (UOp u : NodesOf(rows, Op::kLoad)) {
    if (!IsOfArgument(u, rows.packings[0].copy)) continue;
    const UOp index = u.src(0).src(1);
    EXPECT_TRUE(u.shape().empty());
    places.insert(index.is(Op::kAdd) && index.src(1).is_const() ? index.src(1).const_word() : 0);
  }
  EXPECT_GE(places.size(), 4u);
  EXPECT_EQ(*places.rbegin(), std::ssize(places) - 1);
}

// The masked columns are copied once for all rows: reading the packed rows again for each tile of
// columns costs less than copying the columns again for each tile of rows. The rows are no lanes,
// because vectors do not divide them and no element may be computed twice.
TEST(LowerCopies, PackedRowsAreReadAgainSoThatColumnsAreCopiedOnce) {
  Target cpu = TestProcessorOfHalves();
  cpu.vector_bytes = 32;
  cpu.vector_registers = 16;
  cpu.cache_bytes = 512 << 10;
  const int32_t weights[] = {1};
  Budget budget;
  const auto program = Lower(TestProduct(2044, 49, 512, DType::kFloat32, ProductForm::kInPlace),
                             cpu, "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->packings.size(), 1u);
  EXPECT_LE(program->iterations, 7) << "threads share tiles of columns";
}

// The first-level cache finds a line by its place in a page: of rows that lie 6 KiB apart it keeps
// a few, however few bytes a panel of them has. A weight of such rows is packed.
TEST(LowerCopies, APanelOfRowsOnTheSameSetsIsPacked) {
  Target cpu = TestProcessorOfHalves();
  cpu.cache_bytes = 2 << 20;
  const int32_t weights[] = {2};
  for (const int64_t columns : {1536, 1552}) {
    Budget budget;
    const auto lowered = Lower(
        TestProduct(1536, columns, 1536, DType::kFloat32, ProductForm::kInPlace), cpu, "product",
        &budget, nullptr,
        {.weights = weights,
         .moves = "UPCAST r1 2, UPCAST r0 12, VECTORIZE r1 16, OUTER r1, BLOCK r2 192, OUTER r0"});
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(lowered->packings.size(), columns == 1536 ? 1u : 0u) << columns;
  }
}

// A weight's rows are lanes where columns would overhang: 49 columns are 4 vectors of 16, of which
// the last one has a single column. Units that are half as wide as the registers make it count.
TEST(LowerCopies, RowsOfAWeightAreLanesWhereColumnsOverhang) {
  const int32_t weights[] = {1};
  Target cpu = TestProcessorOfHalves();
  cpu.vector_rate = 1;
  for (const ProductForm form : {ProductForm::kPlain, ProductForm::kInPlace}) {
    Budget budget;
    const auto program = Lower(TestProduct(512, 49, 256, DType::kFloat32, form), cpu, "product",
                               &budget, nullptr, {.weights = weights});
    ASSERT_TRUE(program.ok()) << program.status();
    ASSERT_EQ(program->packings.size(), 1u);
    EXPECT_EQ(program->packings[0].source, 1);
    for (UOp buffer : NodesOf(*program, Op::kBuffer)) {
      EXPECT_LE(buffer.elements(), 16) << "accumulators alone, no copies";
    }
    EXPECT_LE(program->flops, 2.0 * 512 * 49 * 256 * 1.05) << "hardly a lane is computed in vain";
  }
}

// All rows are one tile, so the copy is not read again in a run, but it is in the next one; where
// it lies, the weight is read in short pieces of far rows.
TEST(LowerCopies, WeightsOfAsManyRowsAsATileHasAreCopied) {
  const int32_t weights[] = {2};
  Budget budget;
  const auto program = Lower(TestProduct(8, 1024, 1024, DType::kFloat32), TestProcessorOfHalves(),
                             "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->packings.size(), 1u);
}

// Masks are a matter of copying: what the tile multiplies is read as whole vectors from private
// memory, several of each row. A tile that the loops do not divide has masks, too, where no element
// may be computed twice.
TEST(LowerCopies, MaskedOperandsAreCopiedFirst) {
  for (const ProductForm form : {ProductForm::kMasked, ProductForm::kInPlace}) {
    Budget budget;
    const auto program = Lower(TestProduct(256, 220, 512, DType::kFloat32, form),
                               TestProcessorOfHalves(), "product", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<UOp> operands;
    for (UOp u : NodesOf(*program, Op::kMulAcc)) {
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

// y[o, p, q] = sum over c, i, j of x[c, 8 p + i, 8 q + j] * w[o, c, i, j]: the patches of an image,
// which no kernel writes either. The weight is the one that is packed.
TEST(LowerCopies, AnImageIsNoWeight) {
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
  const auto program =
      Lower(Freeze(sink), TestProcessorOfHalves(), "k", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->packings.size(), 1u) << program->moves;
  EXPECT_EQ(program->packings[0].source, 2);
  EXPECT_NE(program->moves.find("VECTORIZE r0 16"), std::string::npos) << program->moves;
}

// Few rows read the weight where it lies: a copy would be read as often as it is made.
TEST(LowerCopies, WeightsOfFewRowsAreNotCopied) {
  const int32_t weights[] = {2};
  Budget budget;
  const auto program = Lower(TestProduct(2, 1024, 1024, DType::kFloat32), TestProcessorOfHalves(),
                             "product", &budget, nullptr, {.weights = weights});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->packings.empty());
}

}  // namespace
}  // namespace telegrad
