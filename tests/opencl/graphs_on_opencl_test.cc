// Tensor graphs from the frontend on the OpenCL device: what each way to share a kernel among
// workgroups computes, and a step of training. The CPU device judges the results.
#include <random>

#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/opencl/graph_runner.h"

namespace telegrad {
namespace {

using testing::CpuRunner;
using testing::Slots;

constexpr uint64_t kSeed = 7;
constexpr int kRuns = 3;

// Inputs are random, state has its first value.
Slots FirstValues(const Plan& plan) {
  std::mt19937_64 rng(kSeed);
  std::normal_distribution<float> normal;
  Slots slots;
  for (const Slot& slot : plan.slots) {
    std::vector<uint8_t> bytes(static_cast<size_t>(BytesOf(slot.dtype, NumElements(slot.shape))));
    if (slot.role == SlotRole::kState) {
      const std::string first = InitialValue(slot)->bytes;
      bytes.assign(first.begin(), first.end());
    } else if (slot.role == SlotRole::kInput && slot.dtype == DType::kFloat32) {
      for (size_t i = 0; i < bytes.size(); i += 4) {
        const float x = normal(rng);
        std::memcpy(&bytes[i], &x, 4);
      }
    }
    slots.push_back(std::move(bytes));
  }
  return slots;
}

class GraphsOnOpenCl : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_OPENCL(); }

  void ExpectSame(const Plan& plan) {
    Slots want = FirstValues(plan), got = want;
    const auto cpu = CpuRunner::Open();
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    for (int run = 0; run < kRuns; ++run) {
      ASSERT_EQ((*cpu)->Run(plan.graph.root(), {}, &want), absl::OkStatus());
    }
    ASSERT_EQ(GraphRunner().Run(plan.graph.root(), {}, &got, kRuns), absl::OkStatus());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(testing::Difference(plan.slots[i].dtype, false, want[i], got[i]), "")
          << plan.slots[i].name << ", inputs of seed " << kSeed;
    }
  }
};

TEST_F(GraphsOnOpenCl, Elementwise) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {37, 129}, "x");
  const Tensor y = b.Param(DType::kFloat32, {129}, "y");
  b.Output((x * y + 1.5).Maximum(0) - x.Abs().Sqrt(), "out");
  b.Output((x * 1000).Cast(DType::kInt32) + 7, "integers");
  b.Output((x.Cast(DType::kBFloat16) * 3).Cast(DType::kFloat32), "bf16");
  ExpectSame(*b.Finish());
}

// Vectors of 16 lanes and of fewer, by the widest element.
TEST_F(GraphsOnOpenCl, Vectors) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {64, 1024}, "x");
  b.Output(x * 2 + 1, "out");
  b.Output((x * 100).Cast(DType::kInt8), "bytes");
  b.Output(x.Cast(DType::kFloat64) * 0.1, "wide");
  ExpectSame(*b.Finish());
}

TEST_F(GraphsOnOpenCl, Reductions) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {33, 300}, "x");
  b.Output(x.Sum({1}), "rows");
  b.Output(x.Max({0}), "columns");
  b.Output((x * x).Sum().Reshape({1}), "all");
  ExpectSame(*b.Finish());
}

TEST_F(GraphsOnOpenCl, Softmax) {
  Builder b;
  b.Output(b.Param(DType::kFloat32, {16, 200}, "x").Softmax(-1), "out");
  ExpectSame(*b.Finish());
}

// Whole tiles of vectors, sizes that leave a rest, and too few columns for a vector.
TEST_F(GraphsOnOpenCl, Matmuls) {
  for (const int64_t n : {64, 56, 5}) {
    Builder b;
    const Tensor x = b.Param(DType::kFloat32, {50, 40}, "x");
    const Tensor y = b.Param(DType::kFloat32, {40, n}, "y");
    b.Output(x.MatMul(y), "out");
    ExpectSame(*b.Finish());
  }
}

TEST_F(GraphsOnOpenCl, ATrainingStep) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {8, 12}, "x");
  const Tensor y = b.Param(DType::kFloat32, {8, 3}, "y");
  const Tensor w = b.Trainable(DType::kFloat32, {12, 16}, "w", Init::Uniform(-0.3, 0.3, 1));
  const Tensor v = b.Trainable(DType::kFloat32, {16, 3}, "v", Init::Uniform(-0.3, 0.3, 2));
  const Tensor error = x.MatMul(w).Relu().MatMul(v) - y;
  const Tensor loss = (error * error).Mean();
  const std::vector<Tensor> gradients = Gradients(loss, b.trainable());
  for (size_t i = 0; i < gradients.size(); ++i) {
    b.Store(b.trainable()[i], b.trainable()[i] - gradients[i] * 0.1);
  }
  b.Output(loss.Reshape({1}), "loss");
  ExpectSame(*b.Finish());
}

}  // namespace
}  // namespace telegrad
