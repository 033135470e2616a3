// Products with weights of random shapes: the packed copy that lowering asks for, and the program
// that reads it, agree with the evaluator of tensor graphs, in the interpreter for several targets
// and on the CPU, where a run packs into its temporaries.
#include <gtest/gtest.h>

#include <random>

#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad {
namespace {

using testing::Slots;

struct Product {
  int64_t rows, inner, columns;
  bool transposed;  // the weight is [columns, inner]
  bool residual;    // y = x w + r, in place of what r was added up in
  bool left;        // w is doubled first, so that x is what no kernel writes
};

FrozenGraph GraphOf(const Product& p) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {p.rows, p.inner}, "x");
  Tensor w = p.transposed ? b.Param(DType::kFloat32, {p.columns, p.inner}, "w").Transpose(0, 1)
                          : b.Param(DType::kFloat32, {p.inner, p.columns}, "w");
  if (p.left) w = (w + w).Contiguous();
  const Tensor r = b.Param(DType::kFloat32, {p.rows, p.columns}, "r");
  Tensor y = x.MatMul(w);
  if (p.residual) y = y + (r * r).Contiguous();
  b.Output(y, "y");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->graph;
}

int PackingsOf(const FrozenGraph& graph, const Target& target) {
  Budget budget;
  const auto schedule = ScheduleGraph(graph.root(), &budget);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  int packings = 0;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    const auto program =
        Lower(kernel.graph, target, "k", &budget, nullptr, {.weights = kernel.weights});
    EXPECT_TRUE(program.ok()) << program.status();
    packings += program.ok() ? static_cast<int>(program->packings.size()) : 0;
  }
  return packings;
}

TEST(PackedWeights, AgreeWithTheTensorEvaluator) {
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  auto cpu = testing::CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  int packings = 0, left = 0;
  for (int i = 0; i < 8; ++i) {
    const Product p{between(60, 80),   between(130, 200), between(256, 300),
                    random() % 2 == 0, random() % 2 == 0, i % 3 == 2};
    SCOPED_TRACE(StrCat("seed ", kSeed, ", product ", i, ": ", p.rows, " x ", p.inner, " x ",
                        p.columns, p.transposed ? " transposed" : "", p.residual ? " residual" : "",
                        p.left ? " left" : ""));
    const FrozenGraph graph = GraphOf(p);
    Slots before(4);
    const int64_t sizes[] = {p.rows * p.inner, p.inner * p.columns, p.rows * p.columns,
                             p.rows * p.columns};
    for (size_t s = 0; s < before.size(); ++s) {
      std::vector<float> values(static_cast<size_t>(sizes[s]));
      for (float& v : values) v = static_cast<float>(between(-64, 64)) / 64;
      before[s].resize(values.size() * sizeof(float));
      std::memcpy(before[s].data(), values.data(), before[s].size());
    }
    Slots want = before;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(graph.root(), want, &budget).ok());
    for (const int vector_bytes : {16, 64}) {
      Target target;
      target.vector_bytes = vector_bytes;
      target.vector_registers = vector_bytes == 64 ? 32 : 16;
      target.threads = 2;
      const int packed = PackingsOf(graph, target);
      packings += packed;
      left += p.left ? packed : 0;
      Slots got = before;
      const absl::Status status = testing::RunLowered(graph.root(), target, {}, &got);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(testing::Difference(DType::kFloat32, false, want[3], got[3]), "");
    }
    Slots got = before;
    const absl::Status status = (*cpu)->Run(graph.root(), {}, &got);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(testing::Difference(DType::kFloat32, false, want[3], got[3]), "");
  }
  EXPECT_GE(packings, 8) << "most products are of the size that is packed";
  EXPECT_GE(left, 3) << "rows of a left operand are";
}

}  // namespace
}  // namespace telegrad
