// Kernels for AMD's processors compute what the reference interpreter computes, bit for bit but
// for EXP2, which is an instruction: their machine code is executed by tests/fakes/amd, for waves
// of 32 and of 64 threads.
#include <random>

#include "engine/base/strings.h"
#include "engine/reference/program_eval.h"
#include "gtest/gtest.h"
#include "tests/amdgpu/run_on_machine.h"
#include "tests/nvptx/ptx_kernels.h"

namespace telegrad::testing {
namespace {

uint64_t MachineSeed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

std::vector<Target> MachineTargets() {
  std::vector<Target> targets;
  for (const char* name : {"gfx942", "gfx1100"}) {
    targets.push_back(AmdTarget(*FindAmdProcessor(name), 8));
  }
  return targets;
}

void ExpectAsReferenceOnAmd(const PtxKernel& kernel, const Target& target) {
  SCOPED_TRACE(StrCat("seed ", MachineSeed(), ", ", kernel.program.name, " for ", target.arch));
  const auto image = CompileKernel(kernel.program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  std::vector<std::vector<uint8_t>> want = kernel.arguments;
  const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
  const int64_t groups = kernel.program.iterations;
  ASSERT_EQ(reference::Run(kernel.program, buffers, 0, groups), absl::OkStatus());

  std::vector<std::vector<uint8_t>> got = kernel.arguments;
  RunOnMachine(*image, target, 0, groups, &got);
  EXPECT_EQ(Difference(kernel, got, want), "");

  // In slices, the last of which goes beyond the end.
  got = kernel.arguments;
  const int64_t cut = groups / 2;
  if (cut > 0) RunOnMachine(*image, target, 0, cut, &got);
  RunOnMachine(*image, target, cut, groups - cut + 2, &got);
  EXPECT_EQ(Difference(kernel, got, want), "") << "in slices";
}

class ProgramsOnAmd : public ::testing::TestWithParam<const char*> {};

TEST_P(ProgramsOnAmd, ComputeWhatTheReferenceComputes) {
  for (const Target& target : MachineTargets()) {
    ExpectAsReferenceOnAmd(ProgramKernel(GetParam(), target), target);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProgramsOnAmd,
                         ::testing::Values("tiled_gemm", "tree_reduction", "paged_attention"),
                         [](const auto& info) { return std::string(info.param); });

class ElementwiseOnAmd : public ::testing::TestWithParam<DType> {};

TEST_P(ElementwiseOnAmd, ComputesWhatTheReferenceComputes) {
  std::vector<Target> targets = MachineTargets();
  // Which divides small integers in a way of its own.
  if (IsInt(GetParam()) && ByteSize(GetParam()) <= 2) {
    targets.push_back(AmdTarget(*FindAmdProcessor("gfx90a"), 8));
  }
  for (const Target& target : targets) {
    for (int64_t lanes : {1, 4}) {
      ExpectAsReferenceOnAmd(ElementwiseKernel(GetParam(), lanes, target, MachineSeed()), target);
    }
  }
}

TEST(Exp2OnAmd, IsWithinItsBound) {
  SCOPED_TRACE(StrCat("seed ", MachineSeed()));
  for (const AmdProcessor& processor : AmdProcessors()) {
    SCOPED_TRACE(processor.name);
    const Target target = AmdTarget(processor, 8);
    const PtxKernel kernel = Exp2Kernel(target, MachineSeed());
    const auto image = CompileKernel(kernel.program, target);
    ASSERT_TRUE(image.ok()) << image.status();
    std::vector<std::vector<uint8_t>> got = kernel.arguments;
    RunOnMachine(*image, target, 0, kernel.program.iterations, &got);
    EXPECT_EQ(Exp2Difference(kernel, got), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseOnAmd, ::testing::ValuesIn(ElementTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace telegrad::testing
