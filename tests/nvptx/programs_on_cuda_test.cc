// Kernels for NVIDIA's processors compute what the reference interpreter computes, bit for bit but
// for EXP2, which is an instruction: on the fake driver, or on a GPU (raw_cuda.h).
#include <algorithm>
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
                                           "mma_gemm", "load_matrix"),
                         [](const auto& info) { return std::string(info.param); });

class ElementwiseOnCuda : public ::testing::TestWithParam<DType> {};

TEST_P(ElementwiseOnCuda, ComputesWhatTheReferenceComputes) {
  for (int64_t lanes : {1, 4}) {
    ExpectAsReference(ElementwiseKernel(GetParam(), lanes, Ampere(), Seed()), Ampere());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseOnCuda, ::testing::ValuesIn(ElementTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(Exp2OnCuda, IsWithinItsBound) {
  SCOPED_TRACE(StrCat("seed ", Seed()));
  ASSERT_TRUE(Cuda().ok()) << Cuda().status();
  const PtxKernel kernel = Exp2Kernel(Ampere(), Seed());
  const auto image = CompileKernel(kernel.program, Ampere());
  ASSERT_TRUE(image.ok()) << image.status();
  std::vector<Bytes> got = kernel.arguments;
  ASSERT_EQ((*Cuda())->Run(*image, {{0, kernel.program.iterations}}, &got), absl::OkStatus());
  EXPECT_EQ(Exp2Difference(kernel, got), "");
}

// x / c and x % c for multiples x of `step`, up to `most`; each divisor has two arguments.
PtxKernel DivisionKernel(int64_t most, const std::vector<int64_t>& divisors) {
  constexpr int64_t kGroups = 16, kThreads = 128, kAll = kGroups * kThreads;
  auto graph = std::make_shared<Graph>();
  Graph& g = *graph;
  PtxKernel kernel{.program = {}, .arguments = {}, .names = {}};
  Program& program = kernel.program;
  const auto put = [&](UOp u) {
    program.order.push_back(u.id());
    return u;
  };
  const UOp group = put(g.Range(0, AxisType::kGroup, put(g.Index(kGroups))));
  const UOp thread = put(g.Range(1, AxisType::kLocal, put(g.Index(kThreads))));
  const UOp first = put(g.Make(Op::kMul, {group, put(g.Index(kThreads))}));
  const UOp at = put(g.Make(Op::kAdd, {first, thread}));
  const UOp x = put(g.Make(Op::kMul, {at, put(g.Index(most / (kAll - 1)))}));
  for (const int64_t divisor : divisors) {
    for (const Op op : {Op::kFloorDiv, Op::kFloorMod}) {
      const auto slot = static_cast<int64_t>(program.arguments.size());
      program.arguments.push_back({DType::kInt64, kAll, false, true});
      kernel.arguments.emplace_back(kAll * sizeof(int64_t));
      kernel.names.push_back(StrCat(Name(op), " by ", divisor));
      const UOp out = put(g.Param(slot, DType::kInt64, Shape{kAll}));
      const UOp result = put(g.Make(op, {x, put(g.Index(divisor))}));
      put(g.Make(Op::kStore, {put(g.Make(Op::kIndex, {out, at})), result}));
    }
  }
  put(g.Make(Op::kEnd, {thread}));
  put(g.Make(Op::kEnd, {group}));
  std::vector<uint32_t> once;
  for (const uint32_t id : program.order) {
    if (std::ranges::find(once, id) == once.end()) once.push_back(id);
  }
  program.order = once;
  program.name = "divisions";
  program.iterations = kGroups;
  program.graph = std::move(graph);
  return kernel;
}

// Products of 32 and of 64 bits, and what is too large for these.
TEST(DivisionsOnCuda, OfIndicesByConstantsAreExact) {
  const std::vector<int64_t> divisors = {3, 5, 7, 9, 11, 49, 56, 641, 2046, 3136, 65535, 1 << 20};
  for (const int64_t most : {int64_t{2047}, int64_t{1} << 15, int64_t{1} << 16, int64_t{1} << 20,
                             (int64_t{1} << 31) - 1, int64_t{1} << 31, int64_t{1} << 40}) {
    SCOPED_TRACE(most);
    ExpectAsReference(DivisionKernel(most, divisors), Ampere());
  }
}

}  // namespace
}  // namespace telegrad::testing
