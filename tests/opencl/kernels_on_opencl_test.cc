// Kernels in OpenCL C compute what the reference interpreter computes, bit for bit, on whatever
// OpenCL device the machine has.
#include <cstring>
#include <random>

#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/reference/program_eval.h"
#include "gtest/gtest.h"
#include "tests/devices/fixture.h"
#include "tests/nvptx/ptx_kernels.h"
#include "tests/opencl/opencl_fixture.h"

namespace telegrad::testing {
namespace {

using Arguments = std::vector<std::vector<uint8_t>>;

uint64_t Seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

class OnOpenCl : public ::testing::Test {
 protected:
  struct Slice {
    int64_t begin, workgroups;
  };

  void SetUp() override {
    SKIP_WITHOUT_OPENCL();
    device_ = OpenOpenClDevice();
    ASSERT_NE(device_, nullptr);
  }

  const Target& target() const { return device_->target(); }

  // What the slices, one after another, make of the arguments. Each lies behind something else in
  // its buffer.
  absl::StatusOr<Arguments> Run(const ProgramImage& image, const std::vector<Slice>& slices,
                                Arguments arguments) {
    constexpr int64_t kBefore = 192;
    TG_ASSIGN_OR_RETURN(const auto program, device_->Load(image));
    std::vector<BufferView> views;
    for (const auto& bytes : arguments) {
      const auto size = static_cast<int64_t>(bytes.size());
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(size + kBefore));
      views.push_back({memory, kBefore, size});
      const BufferView from = HostBuffer(*host_, std::string(bytes.begin(), bytes.end()));
      TG_ASSIGN_OR_RETURN(const TimelinePoint point, Copy(*device_, views.back(), from));
      TG_RETURN_IF_ERROR(point.Wait());
    }
    std::vector<Command> commands;
    for (const Slice& slice : slices) {
      Command& command = commands.emplace_back();
      command.launch = Launch::Of(program);
      command.launch.begin = slice.begin;
      command.launch.grid.x = slice.workgroups;
      for (size_t i = 0; i < views.size(); ++i) {
        command.launch.arguments.push_back({static_cast<int32_t>(i), 0});
      }
    }
    TG_ASSIGN_OR_RETURN(const auto encoded, device_->Encode(commands));
    TG_ASSIGN_OR_RETURN(const TimelinePoint ran, device_->queue().Submit(encoded, views, {}));
    TG_RETURN_IF_ERROR(ran.Wait());
    for (size_t i = 0; i < views.size(); ++i) {
      const BufferView to = HostBuffer(*host_, std::string(arguments[i].size(), '?'));
      TG_ASSIGN_OR_RETURN(const TimelinePoint point, Copy(*device_, to, views[i]));
      TG_RETURN_IF_ERROR(point.Wait());
      std::memcpy(arguments[i].data(), to.memory->host(), arguments[i].size());
    }
    return arguments;
  }

  void ExpectAsReference(const PtxKernel& kernel) {
    SCOPED_TRACE(StrCat("seed ", Seed(), ", ", kernel.program.name));
    const auto image = CompileKernel(kernel.program, target());
    if (kernel.program.warp > 1) {
      EXPECT_TRUE(absl::IsUnimplemented(image.status())) << "OpenCL C 1.2 has no warps";
      return;
    }
    ASSERT_TRUE(image.ok()) << image.status();
    Arguments want = kernel.arguments;
    const std::vector<std::span<uint8_t>> buffers(want.begin(), want.end());
    const int64_t groups = kernel.program.iterations;
    ASSERT_EQ(reference::Run(kernel.program, buffers, 0, groups), absl::OkStatus());

    auto got = Run(*image, {{0, groups}}, kernel.arguments);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(Difference(kernel, *got, want), "");

    // In slices, the last of which goes beyond the end.
    const int64_t cut = groups / 2;
    std::vector<Slice> slices = {{cut, groups - cut + 2}};
    if (cut > 0) slices.insert(slices.begin(), {0, cut});
    got = Run(*image, slices, kernel.arguments);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(Difference(kernel, *got, want), "") << "in slices";
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::unique_ptr<Device> device_;
};

class ProgramsOnOpenCl : public OnOpenCl, public ::testing::WithParamInterface<const char*> {};

TEST_P(ProgramsOnOpenCl, ComputeWhatTheReferenceComputes) {
  ExpectAsReference(ProgramKernel(GetParam(), target()));
}

INSTANTIATE_TEST_SUITE_P(All, ProgramsOnOpenCl, ::testing::Values("tiled_gemm", "paged_attention"),
                         [](const auto& info) { return std::string(info.param); });

class ElementwiseOnOpenCl : public OnOpenCl, public ::testing::WithParamInterface<DType> {};

TEST_P(ElementwiseOnOpenCl, ComputesWhatTheReferenceComputes) {
  for (int64_t lanes : {1, 4}) {
    ExpectAsReference(ElementwiseKernel(GetParam(), lanes, target(), Seed()));
  }
}

// The other formats of 8 bits are emulated by the same operations on integers.
INSTANTIATE_TEST_SUITE_P(All, ElementwiseOnOpenCl,
                         ::testing::Values(DType::kBool, DType::kInt8, DType::kInt16, DType::kInt32,
                                           DType::kInt64, DType::kUInt8, DType::kUInt16,
                                           DType::kUInt32, DType::kUInt64, DType::kFloat16,
                                           DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                                           DType::kFloat8E4M3),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace telegrad::testing
