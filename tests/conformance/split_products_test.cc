// Products whose sum is divided among workgroups: two kernels, of which the first has tiles in
// local memory and both together compute what the evaluator of tensor graphs does. What the device
// is filled by anyway stays one kernel.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/integers.h"

namespace telegrad {
namespace {

using testing::DifferenceOn;
using testing::RandomGraph;
using testing::WithIntegers;

struct SplitCase {
  const char* name;
  Tensor (*result)(Builder& b, DType dtype);
};

Tensor Product(Builder& b, DType dtype, int64_t m, int64_t n, int64_t k) {
  return b.Param(dtype, {m, k}, "x").MatMul(b.Param(dtype, {k, n}, "w"));
}

// Few rows and columns, and long sums.
const SplitCase kCases[] = {
    {"decode", [](Builder& b, DType dtype) { return Product(b, dtype, 32, 64, 2048); }},
    {"rows that are no tile",
     [](Builder& b, DType dtype) { return Product(b, dtype, 33, 70, 3000); }},
    {"weight's gradient",
     [](Builder& b, DType dtype) {
       const Tensor x = b.Param(dtype, {4096, 40}, "x");
       return x.Transpose().MatMul(b.Param(dtype, {4096, 64}, "w"));
     }},
    {"batch",
     [](Builder& b, DType dtype) {
       const Tensor x = b.Param(dtype, {2, 32, 2048}, "x");
       return x.MatMul(b.Param(dtype, {2, 2048, 32}, "w"));
     }},
    {"bias and residual",
     [](Builder& b, DType dtype) {
       const Tensor y = Product(b, dtype, 32, 64, 2048) + b.Param(dtype, {64}, "bias");
       return y.Relu() + b.Param(dtype, {32, 64}, "residual");
     }},
    {"window",
     [](Builder& b, DType dtype) {
       const Tensor x = b.Param(dtype, {1, 256, 7, 8}, "x");
       return x.Conv(b.Param(dtype, {36, 256, 3, 3}, "w")).Relu();
     }},
    {"padded window",  // copies of single 16-bit floats leave no registers for parts
     [](Builder& b, DType dtype) {
       const Shape x{1, 256, 5, 6}, w{36, 256, 3, 3};
       const Window padded{.pads = {1, 1, 1, 1}};
       const Tensor y = b.Param(DType::kFloat32, x, "x");
       return y.Conv(b.Param(DType::kFloat32, w, "w"), padded).Relu().Cast(dtype);
     }},
    {"window's gradient",
     [](Builder& b, DType dtype) {
       const Tensor x = b.Param(dtype, {16, 16, 14, 14}, "x").Permute({1, 0, 2, 3});
       return x.Conv(b.Param(dtype, {16, 32, 12, 12}, "w").Permute({1, 0, 2, 3}));
     }},
};

struct Kernels {
  std::vector<Program> programs;
  std::string reasons;  // of the first
};

Kernels KernelsOf(UOp sink, const Target& target) {
  Budget budget;
  Kernels out;
  const auto schedule = ScheduleGraph(sink, {}, &budget, ScheduleOptions::For(target));
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  for (size_t k = 0; schedule.ok() && k < schedule->kernels.size(); ++k) {
    const auto program = Lower(schedule->kernels[k].graph, target, "k", &budget);
    EXPECT_TRUE(program.ok()) << program.status();
    if (program.ok()) out.programs.push_back(*program);
    for (const std::string& r : schedule->kernels[k].reasons) StrAppend(&out.reasons, r, "; ");
  }
  return out;
}

Plan PlanOf(const SplitCase& c, DType dtype) {
  Builder b;
  b.Output(c.result(b, dtype), "result");
  auto plan = b.Finish();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

Target Amd(const char* name, int processors) {
  return AmdTarget(*FindAmdProcessor(name), processors);
}

TEST(SplitProducts, ComputeWhatTheWholeOnesCompute) {
  const struct {
    DType dtype;
    Target target;
  } ways[] = {{DType::kFloat32, *NvidiaTarget(8, 0, 108, 163840)},
              {DType::kFloat16, Amd("gfx1100", 48)},
              {DType::kBFloat16, Amd("gfx942", 304)}};
  for (const SplitCase& c : kCases) {
    for (const auto& [dtype, target] : ways) {
      SCOPED_TRACE(StrCat(c.name, ", ", Name(dtype), ", ", target.arch));
      const Plan plan = PlanOf(c, dtype);
      const RandomGraph graph = WithIntegers(plan);
      const Kernels kernels = KernelsOf(graph.sink, target);
      EXPECT_EQ(kernels.programs.size(), 2u);
      if (kernels.programs.size() != 2) continue;
      EXPECT_TRUE(absl::StrContains(kernels.reasons, "adds up products in")) << kernels.reasons;
      EXPECT_EQ(kernels.programs[0].arguments[0].dtype, DType::kFloat32);
      const std::string& moves = kernels.programs[0].moves;
      EXPECT_TRUE(absl::StrContains(moves, "STAGE")) << moves;
      const bool narrow = kernels.programs[0].arguments[1].dtype != DType::kFloat32;
      EXPECT_EQ(absl::StrContains(moves, "TENSORCORE"), narrow) << moves;
      EXPECT_EQ(DifferenceOn(graph, target), "");
    }
  }
}

// A residual that the result replaces: what is added up first reads only operands.
TEST(SplitProducts, ResultsMayReplaceWhatTheyAreAddedTo) {
  const Target target = *NvidiaTarget(8, 0, 108, 163840);
  Builder b;
  const Tensor sum = b.Trainable(DType::kFloat16, {32, 64}, "sum", Init::Uniform(-1, 1, 1));
  b.Store(sum, Product(b, DType::kFloat16, 32, 64, 2048) + sum);
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const RandomGraph graph = WithIntegers(*plan);
  EXPECT_EQ(KernelsOf(graph.sink, target).programs.size(), 2u);
  EXPECT_EQ(DifferenceOn(graph, target), "");
}

int64_t CountOf(int64_t m, int64_t n, int64_t k, const Target& target) {
  const Plan plan = [&] {
    Builder b;
    b.Output(Product(b, DType::kFloat16, m, n, k), "result");
    return *b.Finish();
  }();
  return std::ssize(KernelsOf(plan.graph.root(), target).programs);
}

// The cost of a launch, of the parts' memory and of tiles that processors have anyway.
TEST(SplitProducts, OthersStayWhole) {
  const Target target = *NvidiaTarget(8, 0, 108, 163840);
  EXPECT_EQ(CountOf(16, 4096, 4096, target), 2);
  EXPECT_EQ(CountOf(16, 4096, 4093, target), 1) << "no part divides it";
  EXPECT_EQ(CountOf(16, 64, 256, target), 1) << "short";
  EXPECT_EQ(CountOf(4096, 4096, 4096, target), 1) << "many tiles";
  EXPECT_EQ(CountOf(16, 4096, 4096, *NvidiaTarget(8, 0, 4, 163840)), 1) << "few processors";
  Target processor;
  processor.arch = "x86-64";
  processor.threads = 108;
  EXPECT_EQ(CountOf(16, 4096, 4096, processor), 1);
  EXPECT_EQ(CountOf(16, 4096, 4096, OpenClProcessor(108, 64)), 1);
}

}  // namespace
}  // namespace telegrad
