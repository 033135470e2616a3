// A target that no processor is, so that its costs are those of the table's last row: waves of 48
// threads, workgroups of up to 480, and accesses of 8 bytes. It is a value and nothing else; all
// captured graphs lower for it, are proved, run in the interpreter, which finds races, and agree.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/types/machine_costs.h"
#include "tests/conformance/run_lowered.h"
#include "tests/tinygrad/lowered_captures.h"

namespace telegrad {
namespace {

Target Invented() {
  Target target;
  target.arch = "invented";
  target.vector_bytes = 8;
  target.vector_registers = 24;
  target.converts = {DType::kFloat16, DType::kBFloat16};
  target.threads = 5;
  target.warp = 48;
  target.group_threads = 480;
  target.local_bytes = int64_t{24} << 10;
  target.cache_bytes = 0;
  return target;
}

TEST(InventedTarget, HasNoRowOfItsOwn) { EXPECT_EQ(CostsOf(Invented()).arch, ""); }

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

}  // namespace
}  // namespace telegrad
