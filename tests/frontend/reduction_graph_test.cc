// Reductions, scans, orders and decompositions as graphs: with symbolic sizes, with wrong operands,
// and as kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/strings.h"
#include "engine/explain/explain.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/host_random.h"
#include "tests/frontend/messages.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

constexpr auto kF32 = DType::kFloat32;

// --- Symbolic sizes ---

constexpr int64_t kMost = 7;

struct Symbolic {
  std::string_view name;
  Tensor (*run)(const Tensor& x);  // x: f32 [<=7, 5]; the result has no symbolic axis
};

constexpr Symbolic kSymbolic[] = {
    {"mean", [](const Tensor& x) { return x.Mean({0}); }},
    {"mean of the rest", [](const Tensor& x) { return x.Mean({1}).Sum(); }},
    {"var", [](const Tensor& x) { return x.Var({0}); }},
    {"std", [](const Tensor& x) { return x.Std({0}); }},
    {"max", [](const Tensor& x) { return x.Max({0}) + x.Min({0}); }},
    {"prod", [](const Tensor& x) { return x.Prod({0}); }},
    {"argmax", [](const Tensor& x) { return x.ArgMax(0).Cast(kF32); }},
    {"argmin", [](const Tensor& x) { return x.ArgMin(0).Cast(kF32); }},
    {"any", [](const Tensor& x) { return x.Gt(0.9).Any({0}).Cast(kF32); }},
    {"all", [](const Tensor& x) { return x.Gt(-0.9).All({0}).Cast(kF32); }},
    {"logsumexp", [](const Tensor& x) { return x.LogSumExp({0}); }},
    {"norm", [](const Tensor& x) { return x.Norm({0}, 3); }},
    {"softmax", [](const Tensor& x) { return (x.Softmax(0) * x).Sum({0}); }},
    {"standardize", [](const Tensor& x) { return (x.Standardize({0}, 1e-5) * x).Sum({0}); }},
    {"cumsum", [](const Tensor& x) { return (x.CumSum(0) * x).Sum({0}); }},
    {"cumsum of the rest", [](const Tensor& x) { return (x.CumSum(1) * x).Sum({0}); }},
    {"cumsum beside the rest", [](const Tensor& x) { return x.T().CumSum(0).Sum({1}); }},
    {"cumsum between the rest",
     [](const Tensor& x) { return (x.Unsqueeze(1) * x).Transpose(1, 2).CumSum(1).Sum({0, 2}); }},
    {"cummax of all that is symbolic",
     [](const Tensor& x) { return (x.Unsqueeze(1) * x).CumMax(1).first.Sum({0, 1}); }},
    {"cumprod", [](const Tensor& x) { return (x.CumProd(0) * x).Sum({0}); }},
    {"cummax", [](const Tensor& x) { return (x.CumMax(0).first * x).Sum({0}); }},
    {"logcumsumexp", [](const Tensor& x) { return (x.LogCumSumExp(0) * x).Sum({0}); }},
    {"sort", [](const Tensor& x) { return (x.Sort(0).first * x).Sum({0}); }},
    {"sort down", [](const Tensor& x) { return (x.Sort(0, true).first * x).Sum({0}); }},
    {"sort the rest", [](const Tensor& x) { return (x.Sort(1).first * x).Sum({0}); }},
    {"topk", [](const Tensor& x) { return x.TopK(2, 0).first; }},
    {"trace", [](const Tensor& x) { return x.Trace(); }},
    {"inverse of a batch",
     [](const Tensor& x) {
       const Tensor unit = x.builder()->Eye(5);
       return (x.Unsqueeze(-1) * 0.1 + unit).Inverse().Sum({0});
     }},
};

// What a run cuts off gives what a part of fixed size gives.
TEST(ReductionGraphTest, SymbolicSizes) {
  constexpr int64_t kLength = 4;
  const auto cpu = CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  std::vector<float> values(5 * kMost);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(2 * UnitFraction(1, i) - 1);
  }
  Builder b;
  const Tensor length = b.Variable("length", 1, kMost), x = b.Param(kF32, {kMost, 5}, "x");
  for (const Symbolic& s : kSymbolic) {
    b.Output(s.run(x.Slice(0, 0, kLength)), StrCat(s.name, ", fixed"));
    b.Output(s.run(x.Narrow(0, 0, length)), StrCat(s.name, ", symbolic"));
    ASSERT_TRUE(b.status().ok()) << s.name << ": " << b.status();
  }
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Named inputs = {{"x", HostTensor::Of<float>({kMost, 5}, values)}};
  for (CpuRunner* device : {static_cast<CpuRunner*>(nullptr), cpu->get()}) {
    const auto got = RunPlan(*plan, inputs, device, nullptr, {{"length", kLength}});
    ASSERT_TRUE(got.ok()) << got.status();
    for (const Symbolic& s : kSymbolic) {
      const HostTensor& want = got->at(StrCat(s.name, ", fixed"));
      const HostTensor& have = got->at(StrCat(s.name, ", symbolic"));
      ASSERT_EQ(have.shape, want.shape) << s.name;
      const std::vector<double> a = have.AsDoubles(), c = want.AsDoubles();
      for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(a[i], c[i], 1e-5) << s.name << " " << i;
    }
  }
}

// --- Errors ---

constexpr Mistake kMistakes[] = {
    {[](const Tensor& x) { x.Sum({2}); }, "sum: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.Prod({0, -2}); }, "prod: axis 0 appears twice"},
    {[](const Tensor& x) { x.Mean({-3}); }, "mean: axis -3 is outside of rank 2"},
    {[](const Tensor& x) { x.Var({2}); }, "var: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.StdMean({2}); }, "std: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.Any({2}); }, "any: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.Softmax(2); }, "softmax: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.LogSumExp({2}); }, "logsumexp: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.Normalize(2, 3); }, "normalize: axis 3 is outside of rank 2"},
    {[](const Tensor& x) { x.Norm({0}, NAN); }, "norm: the order is no number"},
    {[](const Tensor& x) { x.Slice(1, 2, 2).Max({1}); },
     "max: axes [1] of [3, 0] have no elements, of which none is the largest"},
    {[](const Tensor& x) { x.Slice(1, 2, 2).Min(); },
     "min: axes [0, 1] of [3, 0] have no elements, of which none is the largest"},
    {[](const Tensor& x) { x.Slice(0, 2, 2).ArgMin(0); },
     "argmin: axis 0 of [0, 4] has 0 elements, expected 1 to 2^31 - 1"},
    {[](const Tensor& x) { x.CumSum(2); }, "cumsum: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.CumMin(2); }, "cummin: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.ArgSort(2); }, "argsort: axis 2 is outside of rank 2"},
    {[](const Tensor& x) { x.TopK(5); },
     "topk: axis 1 of [3, 4] has 4 elements, expected at least k = 5"},
    {[](const Tensor& x) { x.TopK(-1); }, "topk: k is -1, expected 0 or more"},
    {[](const Tensor& x) { x.Sum().Trace(); }, "trace: [] is no matrix, expected two axes or more"},
    {[](const Tensor& x) { x.Cross(x); },
     "cross: axis 1 of [3, 4] and [3, 4] has size 4, expected 3"},
    {[](const Tensor& x) { x.Inverse(); },
     "inverse: the last two axes of [3, 4] differ, expected square matrices"},
    {[](const Tensor& x) { x.Sum({0}).Cholesky(); },
     "cholesky: [4] is no matrix, expected two axes or more"},
    {[](const Tensor& x) { x.PadTo({200, 200}).Determinant(); },
     "determinant: matrices of [200, 200] are over the limit of 128 rows or columns, for each of "
     "which the graph has steps"},
    {[](const Tensor& x) { x.PadTo({100, 200}).Svd(); },
     "svd: matrices of [100, 200] are over the limit of 64 rows or columns, for each of which the "
     "graph has steps"},
    {[](const Tensor& x) { x.Narrow(0, 0, x.builder()->Variable("n", 1, 3)).Qr(); },
     "qr: axis 0 of [<=3, 4] is symbolic, expected matrices of a fixed size"},
    {[](const Tensor& x) { x.NewtonSchulz(-1, {1}); },
     "newton_schulz: -1 steps of 1 coefficients, expected 0 to 100 steps and a coefficient"},
};

TEST(ReductionGraphTest, Messages) { CheckMessages(kMistakes); }

TEST(ReductionGraphTest, GradientsOfSingularVectorsHaveNoRule) {
  Builder b;
  const Tensor x = b.Param(kF32, {3, 4}, "x");
  EXPECT_FALSE(Gradients(std::get<0>(x.Svd()).Sum(), {&x, 1})[0].valid());
  EXPECT_EQ(b.status().code(), absl::StatusCode::kUnimplemented) << b.status();
}

// --- Kernels ---

// The counts are those of two kinds of processor, on whichever the test runs.
Target Cpu(int vector_bytes) {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes / 2;
  target.converts = {DType::kFloat16};
  return target;
}

Explanation Explain(const Shape& in, Tensor (*run)(const Tensor& x), const Target& target) {
  Builder b;
  b.Output(run(b.Param(kF32, in, "x")), "y");
  const absl::StatusOr<Plan> plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  Budget budget;
  auto out = ExplainGraph(plan->graph.root(), {}, target, &budget);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *std::move(out) : Explanation{};
}

struct Launches {
  std::string_view name;
  Shape in;
  Tensor (*run)(const Tensor& x);
  size_t kernels;
  int64_t different;
  double flops, bytes;  // for each element
};

constexpr auto kCumSum = [](const Tensor& x) { return x.CumSum(0); };
constexpr auto kArgSort = [](const Tensor& x) { return x.ArgSort(0); };

// Steps and memory grow with n, or with n log n; the steps of an elimination are the same kernels.
const Launches kLaunches[] = {
    {"softmax", {64, 1000}, [](const Tensor& x) { return x.Softmax(); }, 1, 1, 80, 8},
    {"cumsum", {16}, kCumSum, 1, 1, 45, 8},
    {"cumsum", {1024}, kCumSum, 5, 5, 45, 20},
    {"cumsum", {65536}, kCumSum, 8, 8, 45, 20},
    {"cumsum of columns", {1024, 64}, kCumSum, 6, 6, 25, 20},
    {"cumsum of two columns", {32768, 2}, kCumSum, 7, 7, 45, 20},
    {"cummax", {65536}, [](const Tensor& x) { return x.CumMax(0).first; }, 12, 12, 85, 40},
    {"sort", {64}, kArgSort, 5, 5, 150, 80},
    {"sort", {1024}, kArgSort, 9, 9, 540, 120},
    {"sort", {65536}, kArgSort, 21, 21, 540, 270},
    {"topk", {65536}, [](const Tensor& x) { return x.TopK(50).first; }, 22, 21, 25, 30},
    {"topk", {65536}, [](const Tensor& x) { return x.TopK(1000).first; }, 38, 35, 60, 60},
    {"topk", {1000}, [](const Tensor& x) { return x.TopK(5).first; }, 10, 10, 30, 30},
    {"cholesky", {64, 64}, [](const Tensor& x) { return x.Cholesky(); }, 256, 8, 2000, 1500},
    {"inverse", {64, 64}, [](const Tensor& x) { return x.Inverse(); }, 320, 13, 2000, 2500},
    {"qr", {64, 64}, [](const Tensor& x) { return x.Qr().first; }, 450, 12, 2000, 2000},
    {"svd", {16, 16}, [](const Tensor& x) { return std::get<1>(x.Svd()); }, 280, 9, 6000, 4000},
};

TEST(ReductionGraphTest, Launches) {
  for (const Launches& l : kLaunches) {
    for (const int vector_bytes : {32, 64}) {
      SCOPED_TRACE(StrCat(l.name, " of ", ToString(l.in), ", vectors of ", vector_bytes, " bytes"));
      const Explanation e = Explain(l.in, l.run, Cpu(vector_bytes));
      const auto n = static_cast<double>(NumElements(l.in));
      EXPECT_LE(e.kernels.size(), l.kernels);
      EXPECT_LE(e.different_kernels, l.different);
      EXPECT_LE(e.flops, l.flops * n);
      EXPECT_LE(e.bytes, l.bytes * n);
    }
  }
}

}  // namespace
}  // namespace telegrad::testing
