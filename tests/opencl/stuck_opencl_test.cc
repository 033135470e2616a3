// A device whose commands do not end: it is reported as stuck, and memory that it may still write
// is kept.
#include <memory>
#include <thread>

#include "engine/base/device_lost.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "gmock/gmock.h"
#include "tests/devices/fixture.h"
#include "tests/opencl/opencl_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// Takes some seconds, and then writes what it has come to.
constexpr char kSlow[] =
    "// telegrad-parameters: buffer,begin\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"
    "void slow(__global uchar* restrict p, ulong o, ulong begin) {\n"
    "  ulong x = begin + p[o];\n"
    "  for (ulong i = 0; i < 200000000; ++i) x = x * 6364136223846793005 + i;\n"
    "  p[o] = (uchar)(x | 128);\n}\n";

TEST(StuckOpenCl, KeepsTheHostsMemoryThatItMayWrite) {
  SKIP_WITHOUT_OPENCL();
  const auto host = OpenHost({.index = 7});
  auto device = OpenOpenClDevice({.hang_limit = absl::Milliseconds(100)});
  ASSERT_NE(device, nullptr);
  const auto image = Compile(kSlow, "slow", device->target(), {.opencl_library = OpenClLibrary()});
  ASSERT_TRUE(image.ok()) << image.status();
  const BufferView buffer = Whole(*device->Alloc(1));
  Command slow;
  slow.launch.program = *device->Load(*image);
  slow.launch.arguments = {{0, 0}};
  const auto commands =
      *device->Encode({slow, CopyCommand({.to = {1, 0}, .from = {0, 0}, .length = 1})});
  BufferView out = HostBuffer(*host, "?");
  const std::weak_ptr<Memory> written = out.memory;
  const absl::Status stuck = device->queue().Submit(commands, {buffer, out}, {})->Wait();
  EXPECT_EQ(stuck.code(), absl::StatusCode::kUnavailable) << stuck;
  EXPECT_THAT(stuck.ToString(), HasSubstr("is stuck and takes no more work"));
  EXPECT_EQ(device->Health(), stuck);
  out = {};
  device.reset();  // waits for nothing
  const auto kept = written.lock();
  ASSERT_NE(kept, nullptr);
  // The end of the copy, which nobody told; the device's memory is not what it was either.
  const auto* byte = static_cast<const volatile char*>(kept->host());
  for (int64_t begin = SteadyNs(); *byte == '?' && SteadyNs() - begin < 20'000'000'000;) {
    std::this_thread::yield();
  }
  EXPECT_NE(*byte, '?');
}

// The kernel ends after all: then the device is opened again, and what it might have written is
// given back.
TEST(StuckOpenCl, ComesBackOnceItHasEnded) {
  SKIP_WITHOUT_OPENCL();
  const auto host = OpenHost({.index = 7});
  auto device = OpenOpenClDevice({.hang_limit = absl::Milliseconds(100)});
  ASSERT_NE(device, nullptr);
  const auto image = Compile(kSlow, "slow", device->target(), {.opencl_library = OpenClLibrary()});
  ASSERT_TRUE(image.ok()) << image.status();
  BufferView buffer = Whole(*device->Alloc(1));
  Command slow;
  slow.launch.program = *device->Load(*image);
  slow.launch.arguments = {{0, 0}};
  const auto commands =
      *device->Encode({slow, CopyCommand({.to = {1, 0}, .from = {0, 0}, .length = 1})});
  std::weak_ptr<Memory> written;
  {
    const BufferView out = HostBuffer(*host, "?");
    written = out.memory;
    const absl::Status stuck = device->queue().Submit(commands, {buffer, out}, {})->Wait();
    EXPECT_TRUE(IsDeviceLost(stuck)) << stuck;
  }
  absl::Status recovered;
  do {
    recovered = device->Recover();
    if (absl::IsUnavailable(recovered)) {
      EXPECT_THAT(recovered.ToString(), HasSubstr("is still at work"));
    }
  } while (absl::IsUnavailable(recovered));
  EXPECT_EQ(recovered, absl::OkStatus());
  EXPECT_EQ(device->generation(), 2u);
  EXPECT_TRUE(written.expired());
  EXPECT_TRUE(IsDeviceLost(Copy(*device, HostBuffer(*host, "?"), buffer).status()));
  const BufferView fresh = Whole(*device->Alloc(1)), back = HostBuffer(*host, "?");
  ASSERT_EQ(Copy(*device, fresh, HostBuffer(*host, "!"))->Wait(), absl::OkStatus());
  ASSERT_EQ(Copy(*device, back, fresh)->Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(back), "!");
}

}  // namespace
}  // namespace telegrad
