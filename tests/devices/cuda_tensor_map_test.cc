// Tensor maps on the fake NVIDIA driver: when they are encoded, and what lacks them. That boxes are
// right is tested on all devices (conformance_tensor_map_test.cc).
#include "engine/base/status.h"
#include "tests/devices/conformance_programs.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 4 x 4 x 4 of i32; a box is half of it.
TensorMap Cube() {
  return {.rank = 3,
          .sizes = {4, 4, 4, 1, 1},
          .strides = {4, 16, 64, 0, 0},
          .boxes = {4, 4, 2, 1, 1},
          .element = DType::kInt32};
}

class CudaTensorMaps : public Cuda {
 protected:
  // The box at (0, 0, z) of binding 0, to byte `to` of binding 1.
  Command BoxCommand(uint32_t z, int64_t to) {
    Command box;
    auto program = device().Load(*CudaBox());
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return box;
    box.launch = Launch::Of(*program);
    box.launch.arguments = {LaunchArgument::Map(Cube(), 0, 0, BufferAccess::kRead),
                            {1, to, BufferAccess::kWrite},
                            LaunchArgument::Scalar32(0),
                            LaunchArgument::Scalar32(0),
                            LaunchArgument::Scalar32(z)};
    return box;
  }
};

// The map has the tensor's address, so it is encoded again where that is another, and not else.
TEST_F(CudaTensorMaps, AreEncodedAgainOnlyWhereAddressesHaveChanged) {
  Open();
  const auto commands = *device().Encode({BoxCommand(2, 0), BoxCommand(0, 128)});
  std::string first(256, '\0'), second(256, '\0');
  for (size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<char>(i);
    second[i] = static_cast<char>(3 * i + 1);
  }
  const BufferView a = Buffer(256), b = Buffer(256), to = Buffer(256), other = Buffer(256);
  Fill(a, first);
  Fill(b, second);
  const auto run = [&](const BufferView& from, const BufferView& into) {
    const auto point = device().queue().Submit(commands, {from, into}, {});
    ASSERT_TRUE(point.ok()) << point.status();
    EXPECT_EQ(point->Wait(), absl::OkStatus());
  };
  run(a, to);
  EXPECT_EQ(Read(to), first.substr(128) + first.substr(0, 128));
  EXPECT_EQ(fake_.Count("tensor_maps"), 2);
  run(a, to);
  EXPECT_EQ(fake_.Count("graph_launches"), 2);
  EXPECT_EQ(fake_.Count("tensor_maps"), 2);
  EXPECT_EQ(fake_.Count("node_updates"), 0);
  run(b, to);
  EXPECT_EQ(Read(to), second.substr(128) + second.substr(0, 128));
  EXPECT_EQ(fake_.Count("graph_launches"), 3);
  EXPECT_EQ(fake_.Count("tensor_maps"), 4);
  EXPECT_EQ(fake_.Count("node_updates"), 2);
  run(b, other);
  EXPECT_EQ(Read(other), second.substr(128) + second.substr(0, 128));
  EXPECT_EQ(fake_.Count("live_graphs"), 2);  // one, and what it was instantiated from
  EXPECT_EQ(Unasked(fake_.Problems()), "");
}

TEST_F(CudaTensorMaps, GoOnInTheNextGeneration) {
  Open();
  const auto commands = *device().Encode({BoxCommand(2, 0)});
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(device().queue().Submit(commands, {Buffer(256), Buffer(128)}, {})->Wait().ok());
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  const BufferView from = Buffer(256), to = Buffer(128);
  const std::string half(128, 'h');
  Fill(from, std::string(128, 'l') + half);
  EXPECT_EQ(device().queue().Submit(commands, {from, to}, {})->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(to), half);
}

TEST_F(CudaTensorMaps, ADriverWithoutThemSaysSo) {
  Open({.library = TELEGRAD_FAKE_CUDA_WITHOUT_MAPS});
  ASSERT_EQ(devices_.size(), 2u);
  const absl::Status status = device().Load(*CudaBox()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("CUDA:0: the program box takes tensor maps"),
                    HasSubstr("the driver lacks cuTensorMapEncodeTiled"), HasSubstr("CUDA 12.0")));
  // All else goes on.
  const BufferView buffer = Buffer(1);
  EXPECT_EQ(Run({NextCommand(Next())}, {buffer}), absl::OkStatus());
  EXPECT_EQ(Read(buffer), "\1");
}

TEST_F(CudaTensorMaps, AGpuWithoutThemSaysSo) {
  fake_.Set("capability", 89);
  Open();
  const absl::Status status = device().Load(*CudaBox()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("CUDA:0: the program box takes tensor maps"),
                    HasSubstr("its compute capability is 8.9, expected 9.0 or later")));
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// The driver would read 128 bytes where there are 8, or the reverse.
TEST_F(CudaTensorMaps, ParametersHaveTheBytesOfTheirSignature) {
  Open();
  const auto why = [&](const std::string& from, const std::string& to) {
    ProgramImage image = *CudaBox();
    const size_t at = image.binary.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    image.binary.replace(at, from.size(), to);
    const absl::Status status = device().Load(image).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(
      why(".param .align 64 .b8 map[128]", ".param .u64 map"),
      HasSubstr("its parameter 0 has 8 bytes, its signature says tensor_map, which has 128"));
  EXPECT_THAT(why(".b8 map[128]", ".b8 map[64]"), HasSubstr("its parameter 0 has 64 bytes"));
  EXPECT_THAT(why(".param .u64 to", ".param .align 64 .b8 to[128]"),
              HasSubstr("its parameter 1 has 128 bytes, its signature says buffer, which has 8"));
  EXPECT_THAT(why(".param .u32 z", ".param .u64 .ptr .global .align 16 z"),
              HasSubstr("its parameter 4 has 8 bytes, its signature says scalar32"));
}

}  // namespace
}  // namespace telegrad
