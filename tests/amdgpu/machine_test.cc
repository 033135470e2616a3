// Kernels for AMD's processors compute what the reference interpreter computes, bit for bit: their
// machine code is executed by tests/fakes/amd, for waves of 32 and of 64 threads.
#include <random>

#include "engine/base/strings.h"
#include "engine/reference/program_eval.h"
#include "gtest/gtest.h"
#include "tests/fakes/amd/amd_machine.h"
#include "tests/nvptx/ptx_kernels.h"

namespace telegrad::testing {
namespace {

using HostBytes = std::vector<uint8_t>;

constexpr uint64_t kBudget = 200'000'000;          // instructions of waves
constexpr uint64_t kFirst = uint64_t{0x7a} << 40;  // a device address
constexpr uint64_t kGap = 4096;

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

// Launches `groups` workgroups from `begin` on and changes the arguments as the kernel does.
void RunOnMachine(const ProgramImage& image, const Target& target, int64_t begin, int64_t groups,
                  std::vector<HostBytes>* arguments) {
  const auto* elf = reinterpret_cast<const uint8_t*>(image.binary.data());
  const fakeamd::CodeObject object =
      fakeamd::LoadCodeObject({elf, image.binary.size()}, target.arch);
  ASSERT_EQ(object.error, "");
  ASSERT_EQ(object.kernels.size(), 1u);
  const fakeamd::Kernel& kernel = object.kernels[0];
  ASSERT_EQ(kernel.name, image.name);
  ASSERT_EQ(kernel.arguments.size(), arguments->size() + 1);
  EXPECT_EQ(kernel.wavefront, static_cast<uint32_t>(target.warp));
  fakeamd::MemoryView memory;
  HostBytes kernarg(kernel.kernarg_bytes);
  const auto put = [&](size_t number, uint64_t value) {
    const fakeamd::Argument& argument = kernel.arguments[number];
    ASSERT_EQ(argument.bytes, 8u);
    ASSERT_LE(argument.offset + 8u, kernarg.size());
    std::memcpy(&kernarg[argument.offset], &value, 8);
  };
  uint64_t next = kFirst;
  for (size_t i = 0; i < arguments->size(); ++i) {
    HostBytes& bytes = (*arguments)[i];
    put(i, next);
    memory.push_back({.base = next, .bytes = bytes.size(), .host = bytes.data(), .keep = nullptr});
    next = (next + bytes.size() + 2 * kGap) / kGap * kGap;
  }
  put(arguments->size(), static_cast<uint64_t>(begin));
  fakeamd::Launch launch;
  launch.object = &object;
  launch.kernel = &kernel;
  launch.grid = {static_cast<uint32_t>(groups), 1, 1};
  launch.block = {static_cast<uint32_t>(image.signature.group.x), 1, 1};
  launch.dynamic_group_bytes = static_cast<uint32_t>(image.signature.local_bytes);
  launch.kernarg = kernarg;
  launch.memory = &memory;
  launch.budget = kBudget;
  const fakeamd::Fault fault = fakeamd::Run(launch, nullptr);
  EXPECT_EQ(fault.code, fakeamd::FaultCode::kNone) << fault.message;
}

void ExpectAsReferenceOnAmd(const PtxKernel& kernel, const Target& target) {
  SCOPED_TRACE(StrCat("seed ", MachineSeed(), ", ", kernel.program.name, " for ", target.arch));
  const auto image = CompileKernel(kernel.program, target);
  ASSERT_TRUE(image.ok()) << image.status();
  std::vector<HostBytes> want = kernel.arguments;
  const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
  const int64_t groups = kernel.program.iterations;
  ASSERT_EQ(reference::Run(kernel.program, buffers, 0, groups), absl::OkStatus());

  std::vector<HostBytes> got = kernel.arguments;
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

INSTANTIATE_TEST_SUITE_P(All, ElementwiseOnAmd, ::testing::ValuesIn(ElementTypes()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace telegrad::testing
