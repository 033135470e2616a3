// A target that no processor is, whose costs are those of all that was not measured: waves of 48
// threads, workgroups of up to 480, accesses of 8 bytes, and matrix instructions of 12 x 24 x 8. It
// is a row of targets.def, with some of mma.def, and nothing else; all captured graphs lower for
// it, are proved, run in the interpreter, which finds races, and agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/ir/product_tile.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/test_product.h"
#include "tests/conformance/run_lowered.h"
#include "tests/tinygrad/lowered_captures.h"

namespace telegrad {
namespace {

Target Invented() {
  Target target = TargetOf(TargetKind::kInvented);
  target.threads = 5;
  return target;
}

TEST(InventedTarget, CapturedGraphsAgree) { testing::ExpectLoweredCapturesAgree(Invented()); }

// Lanes exchange values by the bits of their numbers, and 48 has none that reaches all: 16 of them
// exchange, and what these have meets in local memory.
TEST(InventedTarget, AWholeWaveReducesARow) {
  constexpr int64_t kRows = 3, kTerms = 96;
  Graph g;
  const UOp x = g.Param(0, DType::kFloat32, Shape{kRows, kTerms});
  const UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {x}, {static_cast<int64_t>(ReduceKind::kAdd), 1});
  const UOp out = g.Param(1, DType::kFloat32, sum.shape());
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})});
  testing::Slots slots{std::vector<uint8_t>(kRows * kTerms * 4), std::vector<uint8_t>(kRows * 4)};
  float wanted[kRows] = {};
  for (int64_t i = 0; i < kRows * kTerms; ++i) {
    const auto value = static_cast<float>(i % 31);
    std::memcpy(slots[0].data() + i * 4, &value, 4);
    wanted[i / kTerms] += value;
  }
  const auto wave = [](const FrozenGraph&, const Target&,
                       std::span<const int32_t>) -> absl::StatusOr<std::string> {
    return "LOCAL r1 48 axis 0, GROUP r0";
  };
  const absl::Status status = testing::RunLowered(sink, Invented(), {}, &slots, wave);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::memcmp(slots[1].data(), wanted, sizeof(wanted)), 0);
}

// 40 and 52 are no multiples of 12 and 24, and 20 none of 8.
TEST(InventedTarget, AProductTakesItsMatrixInstruction) {
  constexpr int64_t kM = 40, kN = 52, kK = 20;
  Graph g;
  const UOp a =
      g.Make(Op::kReshape, DType::kVoid, {g.Param(0, DType::kFloat16, Shape{kM, kK})}, {kM, 1, kK});
  const UOp b =
      g.Make(Op::kReshape, DType::kVoid, {g.Param(1, DType::kFloat16, Shape{kN, kK})}, {1, kN, kK});
  const auto wide = [&](UOp x) {
    return g.Make(Op::kExpand, DType::kVoid, {g.Make(Op::kCast, DType::kFloat32, {x})},
                  {kM, kN, kK});
  };
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {g.Make(Op::kMul, {wide(a), wide(b)})},
                         {static_cast<int64_t>(ReduceKind::kAdd), 2});
  const UOp out = g.Param(2, DType::kFloat32, sum.shape());
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})});
  ASSERT_TRUE(g.status().ok()) << g.status();
  testing::Slots slots{std::vector<uint8_t>(kM * kK * 2), std::vector<uint8_t>(kN * kK * 2),
                       std::vector<uint8_t>(kM * kN * 4)};
  // Whole numbers below 8: as f16 they and their products are exact.
  std::vector<int> x(kM * kK), y(kN * kK);
  const auto fill = [](std::vector<int>* values, int step, uint8_t* to) {
    for (size_t i = 0; i < values->size(); ++i) {
      (*values)[i] = static_cast<int>(i * step % 7);
      const int64_t code =
          ScalarToMemory(DType::kFloat16, ScalarFromDouble(DType::kFloat16, (*values)[i]));
      std::memcpy(to + i * 2, &code, 2);  // the lower bytes
    }
  };
  fill(&x, 3, slots[0].data());
  fill(&y, 5, slots[1].data());
  int instructions = 0;
  const auto heuristic = [&](const FrozenGraph& kernel, const Target& target,
                             std::span<const int32_t>) -> absl::StatusOr<std::string> {
    Budget budget;
    const auto program = Lower(kernel, target, "product", &budget);
    if (!program.ok()) return program.status();
    for (const uint32_t id : program->order) {
      const UOp u = program->graph->at(id);
      instructions += u.is(Op::kMma) && u.mma().kind == MmaKind::kInventedF16;
    }
    return program->moves;
  };
  const absl::Status status = testing::RunLowered(sink, Invented(), {}, &slots, heuristic);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(instructions, 0);
  for (int64_t i = 0; i < kM * kN; ++i) {
    int wanted = 0;
    for (int64_t k = 0; k < kK; ++k) wanted += x[i / kN * kK + k] * y[i % kN * kK + k];
    float got = 0;
    std::memcpy(&got, slots[2].data() + i * 4, 4);
    ASSERT_EQ(got, static_cast<float>(wanted)) << i;
  }
}

// The moves of a product of f32 of 48 x 48 and 64 terms.
std::string MovesOfProduct(const Target& target) {
  const FrozenGraph kernel = TestProduct(48, 48, 64);
  Budget budget;
  const auto program = Lower(kernel, target, "product", &budget);
  return program.ok() ? program->moves : program.status().ToString();
}

// A thread that shares nothing has as many rows of a product as the row's registers hold, and an
// attention as many in a warp as the row's matrix instruction, or the row's accesses, have.
TEST(InventedTarget, AnotherRowMakesAnotherChoice) {
  Target alone = Invented();
  alone.stages = false;
  EXPECT_EQ(alone.vector_registers, 24);
  EXPECT_THAT(MovesOfProduct(alone), ::testing::HasSubstr("UPCAST r0 8"));
  alone.vector_registers = 12;
  EXPECT_THAT(MovesOfProduct(alone), ::testing::HasSubstr("UPCAST r0 4"));
  alone.vector_registers = 6;
  EXPECT_THAT(MovesOfProduct(alone), ::testing::HasSubstr("UPCAST r0 4"));
  EXPECT_THAT(MovesOfProduct(alone), ::testing::Not(::testing::HasSubstr("UPCAST r1")));

  Target rows = Invented();
  EXPECT_EQ(WarpRows(rows), 4);  // accesses of two f32; 12 x 24 x 8 are no squares
  rows.vector_bytes = 16;
  EXPECT_EQ(WarpRows(rows), 16);
  rows.vector_bytes = 8;
  rows.matrix = MatrixUnit::kMfma;
  EXPECT_EQ(WarpRows(rows), 16);
}

}  // namespace
}  // namespace telegrad
