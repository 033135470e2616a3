// The sum of two vectors, written by hand as a program, compiled and run for every target that
// this machine has.
#include "tests/kernels/kernel_fixture.h"

namespace telegrad {
namespace {

TEST(Elementwise, VectorAddOnEveryTarget) {
  constexpr int64_t kBlocks = 10, kLanes = 16, kSize = kBlocks * kLanes;
  ProgramBuilder b("add");
  const UOp out = b.Argument(DType::kFloat32, kSize);
  const UOp x = b.Argument(DType::kFloat32, kSize);
  const UOp y = b.Argument(DType::kFloat32, kSize);
  const UOp i = b.Open(AxisType::kThread, kBlocks);
  const UOp base = b.Do(Op::kMul, {i, b.Index(kLanes)});
  const UOp at = b.Do(Op::kAdd, {base, b.Iota(kLanes)});
  b.Store(out, at, b.Do(Op::kAdd, {b.Load(x, at), b.Load(y, at)}));
  b.Close(i);

  std::vector<float> xs(kSize), ys(kSize), expected(kSize);
  for (int64_t k = 0; k < kSize; ++k) {
    xs[k] = 0.5f * static_cast<float>(k);
    ys[k] = 1000.0f / static_cast<float>(k + 1);
    expected[k] = xs[k] + ys[k];
  }
  for (const auto& [name, target] : TestTargets()) {
    const auto memory = Upload(std::vector<float>(kSize, -1));
    ASSERT_EQ(RunOnce(b.Build(), {memory, Upload(xs), Upload(ys)}, target), absl::OkStatus());
    EXPECT_EQ(Download<float>(*memory), expected) << name;
  }
}

}  // namespace
}  // namespace telegrad
