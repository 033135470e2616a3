// Tensor maps on the fake NVIDIA driver: when they are encoded, and what lacks them. That boxes are
// right is tested on all devices (conformance_tensor_map_test.cc).
#include "engine/base/status.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/tensor_map_programs.h"

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

// The driver is told the type, the swizzle and the fill: it refuses NaN for what is no float, and
// its interpreter rows that are not as long as the swizzle's span.
TEST_F(CudaTensorMaps, EveryFieldReachesTheDriver) {
  Open();
  const BufferView from = Buffer(128), to = Buffer(128);
  std::string bytes(128, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(7 * i);
  Fill(from, bytes);
  const auto boxed = [&](const TensorMap& map, uint32_t x) {
    Command box = BoxCommand(0, 0);
    box.launch.arguments[0] = LaunchArgument::Map(map, 0, 0, BufferAccess::kRead);
    box.launch.arguments[2] = LaunchArgument::Scalar32(x);
    EXPECT_EQ(Run({box}, {from, to}), absl::OkStatus());
    return Read(to);
  };
  // As many elements of the type as 128 bytes have, in rows of so many bytes.
  const auto dense = [](DType element, int64_t row) {
    const int64_t size = ByteSize(element);
    TensorMap map{.rank = 3, .strides = {size, row, 128, 0, 0}, .element = element};
    map.sizes = map.boxes = {row / size, 128 / row, 1, 1, 1};
    return map;
  };
  using enum DType;
  for (const DType element : {kBool, kInt8, kUInt16, kInt32, kUInt32, kInt64, kUInt64, kFloat16,
                              kBFloat16, kFloat32, kFloat64, kFloat8E4M3}) {
    SCOPED_TRACE(Name(element));
    EXPECT_EQ(boxed(dense(element, 32), 0), bytes);
    EXPECT_EQ(boxed(dense(element, 32), 1000), std::string(128, '\0'));
  }
  for (const DType element : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    SCOPED_TRACE(Name(element));
    TensorMap map = dense(element, 32);
    map.fill = TensorFill::kNan;
    const std::string nan =
        std::string(static_cast<size_t>(ByteSize(element)) - 1, '\xff') + '\x7f';
    EXPECT_EQ(boxed(map, 1000).substr(0, nan.size()), nan);
  }
  TensorMap swizzled = dense(kUInt8, 32);
  swizzled.swizzle = TensorSwizzle::k32Bytes;
  EXPECT_EQ(boxed(swizzled, 0), bytes);  // one line of 128 bytes, in which nothing moves
  swizzled = dense(kUInt8, 64);
  swizzled.swizzle = TensorSwizzle::k64Bytes;
  EXPECT_EQ(boxed(swizzled, 0), bytes);
  swizzled = dense(kUInt8, 128);
  swizzled.swizzle = TensorSwizzle::k128Bytes;
  EXPECT_EQ(boxed(swizzled, 0), bytes);
  // Half of a span: the interpreter faults.
  swizzled = dense(kUInt8, 64);
  swizzled.swizzle = TensorSwizzle::k128Bytes;
  Command box = BoxCommand(0, 0);
  box.launch.arguments[0] = LaunchArgument::Map(swizzled, 0, 0, BufferAccess::kRead);
  EXPECT_FALSE(Run({box}, {from, to}).ok());
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
