// Kernels for NVIDIA's processors compute what the reference interpreter computes, bit for bit: on
// the fake driver, or on a GPU (raw_cuda.h).
#include <cstdlib>
#include <random>

#include "engine/base/strings.h"
#include "engine/reference/program_eval.h"
#include "gtest/gtest.h"
#include "tests/nvptx/ptx_kernels.h"
#include "tests/nvptx/raw_cuda.h"

namespace telegrad::testing {
namespace {

using Bytes = std::vector<uint8_t>;

std::string Library() {
  const char* named = std::getenv("TELEGRAD_CUDA");
  return named != nullptr ? named : TELEGRAD_FAKE_CUDA;
}

// One context for all tests; what failed once is said by each.
const absl::StatusOr<std::unique_ptr<RawCuda>>& Cuda() {
  static const auto* const cuda =
      new absl::StatusOr<std::unique_ptr<RawCuda>>(RawCuda::Open(Library()));
  return *cuda;
}

uint64_t Seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

void ExpectAsReference(const PtxKernel& kernel, const Target& target) {
  SCOPED_TRACE(StrCat("seed ", Seed(), ", ", kernel.program.name, " for ", target.arch));
  ASSERT_TRUE(Cuda().ok()) << Cuda().status();
  const auto image = CompileKernel(kernel.program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  std::vector<Bytes> want = kernel.arguments;
  const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
  const int64_t groups = kernel.program.iterations;
  ASSERT_EQ(reference::Run(kernel.program, buffers, 0, groups), absl::OkStatus());

  std::vector<Bytes> got = kernel.arguments;
  ASSERT_EQ((*Cuda())->Run(*image, {{0, groups}}, &got), absl::OkStatus());
  EXPECT_EQ(Difference(kernel, got, want), "");

  // In slices, the last of which goes beyond the end; the second of two equal ones changes nothing.
  got = kernel.arguments;
  const int64_t cut = groups / 2;
  std::vector<RawCuda::Slice> slices = {{cut, groups - cut + 2}};
  if (cut > 0) slices.insert(slices.begin(), {0, cut});
  ASSERT_EQ((*Cuda())->Run(*image, slices, &got), absl::OkStatus());
  EXPECT_EQ(Difference(kernel, got, want), "") << "in slices";
}

bool Runs(const Target& target) {
  return target.arch != "sm_90a" || !Cuda().ok() || (*Cuda())->capability() == 90;
}

class ProgramsOnCuda : public ::testing::TestWithParam<const char*> {};

TEST_P(ProgramsOnCuda, ComputeWhatTheReferenceComputes) {
  for (const Target& target : {Ampere(), Hopper()}) {
    if (Runs(target)) ExpectAsReference(ProgramKernel(GetParam(), target), target);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProgramsOnCuda,
                         ::testing::Values("tiled_gemm", "tree_reduction", "paged_attention",
                                           "mma_gemm"),
                         [](const auto& info) { return std::string(info.param); });

class ElementwiseOnCuda : public ::testing::TestWithParam<DType> {};

TEST_P(ElementwiseOnCuda, ComputesWhatTheReferenceComputes) {
  for (int64_t lanes : {1, 4}) {
    ExpectAsReference(ElementwiseKernel(GetParam(), lanes, Ampere(), Seed()), Ampere());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseOnCuda, ::testing::ValuesIn(ElementTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace telegrad::testing
