// Functions for which wide vectors have instructions of their own, on this processor, at all edges.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/render/llvm.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What the graph of `f` computes of x, and of y where it has two parameters.
std::vector<float> Compute(const std::function<Tensor(Tensor, Tensor)>& f,
                           const std::vector<float>& x, const std::vector<float>& y) {
  const auto n = static_cast<int64_t>(x.size());
  Builder b;
  const Tensor first = b.Param(DType::kFloat32, {n}, "x"),
               second = b.Param(DType::kFloat32, {n}, "y");
  b.Output(f(first, second), "out");
  const auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  const UOp root = plan->graph.root();
  testing::Slots slots = testing::EmptySlots(root);
  std::memcpy(slots[0].data(), x.data(), slots[0].size());
  std::memcpy(slots[1].data(), y.data(), slots[1].size());
  const auto runner = testing::CpuRunner::Open();
  EXPECT_TRUE(runner.ok()) << runner.status();
  const absl::Status status = (*runner)->Run(root, {}, &slots);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<float> out(slots.back().size() / sizeof(float));
  std::memcpy(out.data(), slots.back().data(), slots.back().size());
  return out;
}

bool Same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Whole powers are exact also where they are subnormal, and 0 from half of the least f32 on.
TEST(WideFloats, PowersOfTwo) {
  std::vector<float> x;
  for (int i = -1100; i <= 520; ++i) x.push_back(static_cast<float>(i) / 4);
  for (const float edge : {-kInf, kInf, kNan, -1e30F, 1e30F, -0.0F, -149.5F, -150.0F, -150.5F,
                           -253.5F, -254.0F, 127.99999F, 128.0F}) {
    x.push_back(edge);
  }
  while (x.size() % 16 != 0) x.push_back(0);
  const auto got = Compute([](const Tensor& a, const Tensor& b) { return a.Exp2() + b; }, x,
                           std::vector<float>(x.size()));
  ASSERT_EQ(got.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(got[i]));
    } else if (want >= 0x1p128) {
      EXPECT_EQ(got[i], kInf) << x[i];
    } else if (x[i] == std::floor(x[i])) {
      EXPECT_TRUE(Same(got[i], static_cast<float>(want))) << x[i] << ": " << got[i];
    } else {
      const double unit = std::max(std::abs(want) * 0x1p-23, 0x1p-149);
      EXPECT_LE(std::abs(got[i] - want), 2 * unit) << x[i];
    }
  }
}

TEST(WideFloats, TheLargerOfTwo) {
  const std::vector<float> edges = {0,         -0.0F,      1,      -1,      kInf,  -kInf,
                                    kNan,      -kNan,      1e-40F, -1e-40F, 3e38F, -3e38F,
                                    0x1p-126F, -0x1p-126F, 2,      -2};
  std::vector<float> x, y;
  for (const float a : edges) {
    for (const float b : edges) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  const auto got = Compute([](const Tensor& a, const Tensor& b) { return a.Maximum(b); }, x, y);
  ASSERT_EQ(got.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    float want = x[i] > y[i] ? x[i] : y[i];
    if (x[i] == 0 && y[i] == 0) want = std::signbit(x[i]) ? y[i] : x[i];
    if (std::isnan(x[i]) || std::isnan(y[i])) want = kNan;
    EXPECT_TRUE(Same(want, got[i])) << x[i] << ", " << y[i] << ": " << got[i];
  }
}

// A NaN anywhere in a row is its maximum, and zeros of both signs have a positive one.
TEST(WideFloats, TheLargestOfARow) {
  constexpr size_t kRow = 256;
  for (size_t at = 0; at < kRow + 7; at += 7) {
    std::vector<float> x(kRow, -0.0F), y(kRow);
    for (size_t i = 0; i < kRow; ++i) y[i] = static_cast<float>(i % 37) - 50;
    if (at < kRow) x[at] = 0;
    if (at < kRow) y[at] = kNan;
    const auto largest = Compute(
        [&](const Tensor& a, const Tensor& b) {
          return (a.Reshape({1, kRow}) + b.Reshape({1, kRow}) * 0.0).Max({1});
        },
        x, y);
    EXPECT_TRUE(at < kRow ? std::isnan(largest[0]) : largest[0] == 0) << at;
  }
}

// No integers are left of the exponential of a wide vector.
TEST(WideFloats, APowerIsOneInstruction) {
  Builder b;
  b.Output(b.Param(DType::kFloat32, {1024}, "x").Exp2(), "out");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  Target target = HostTarget(1);
  target.arch = "x86-64";
  target.features = "+avx512dq,+avx512f";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  Budget budget;
  const auto schedule = ScheduleGraph(plan->graph.root(), &budget, ScheduleOptions::For(target));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const auto program = Lower(schedule->kernels[0].graph, target, "k", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto with = RenderLlvm(*program, target);
  EXPECT_NE(with->find("llvm.x86.avx512.mask.scalef.ps.512"), std::string::npos);
  target.features = "+avx512f";
  EXPECT_EQ(RenderLlvm(*program, target)->find("scalef"), std::string::npos);
}

}  // namespace
}  // namespace telegrad
