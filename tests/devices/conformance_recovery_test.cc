// Generations: what is lost with a device, and what goes on when it is back; see conformance.h.
#include "engine/base/status.h"
#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

TEST_P(Conformance, AHealthyDeviceIsNotRecovered) {
  OpenDevice();
  EXPECT_EQ(device_->generation(), 1u);
  const absl::Status status = device_->Recover();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(device_->name()));
  EXPECT_EQ(device_->generation(), 1u);
}

TEST_P(Conformance, ComesBackAsANewGeneration) {
  if (GetParam().fault == nullptr)
    GTEST_SKIP() << "no fault can be provoked here: only the fakes of CUDA, HIP and NV have one";
  OpenDevice();
  Command next;
  next.launch = Launch::Of(*device_->Load(*GetParam().next()));
  next.launch.arguments = {{0, 0}};
  const auto commands = *device_->Encode({next, next});
  BufferView old = Buffer(4);
  for (uint64_t lost = 1; lost < 4; ++lost) {
    const auto named = AllOf(HasSubstr(device_->name()), HasSubstr(StrCat("generation ", lost)));
    const auto expect_lost = [&](const absl::Status& status) {
      EXPECT_EQ(status.code(), kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), named);
    };
    GetParam().fault();
    const Gate gate;
    const TimelinePoint waiting = Copied(old, HostBuffer(*host_, "wait"), {gate.point()});
    expect_lost(device_->queue().Submit(commands, {old}, {})->Wait());
    expect_lost(device_->Health());
    expect_lost(waiting.Wait());  // what had not ended
    expect_lost(device_->Alloc(1).status());
    expect_lost(device_->queue().Submit(commands, {old}, {}).status());
    EXPECT_EQ(device_->generation(), lost);

    ASSERT_EQ(device_->Recover(), absl::OkStatus());
    EXPECT_EQ(device_->generation(), lost + 1);
    EXPECT_EQ(device_->Health(), absl::OkStatus());
    // Its memory is gone, and says of which generation it is, on either queue.
    expect_lost(device_->queue().Submit(commands, {old}, {}).status());
    expect_lost(Copy(*device_, old, HostBuffer(*host_, "more")).status());
    // Programs and commands go on.
    const BufferView fresh = Buffer(4);
    ASSERT_EQ(device_->queue().Submit(commands, {fresh}, {})->Wait(), absl::OkStatus());
    ExpectBytes(fresh, std::string("\2\0\0\0", 4));
    old = fresh;
  }
  if (GetParam().problems) EXPECT_EQ(GetParam().problems(), "");
}

// Of a loss, objects are left that are dropped in any order, with the device or after it.
TEST_P(Conformance, WhatIsLeftOfALossIsDroppedLater) {
  if (GetParam().fault == nullptr)
    GTEST_SKIP() << "no fault can be provoked here: only the fakes of CUDA, HIP and NV have one";
  OpenDevice();
  auto program = *device_->Load(*GetParam().next());
  Command next;
  next.launch = Launch::Of(program);
  next.launch.arguments = {{0, 0}};
  auto commands = *device_->Encode({next, next});
  BufferView before = Buffer(1 << 20), in_between = Buffer(8);
  GetParam().fault();
  EXPECT_EQ(device_->queue().Submit(commands, {before}, {})->Wait().code(), kUnavailable);
  ASSERT_EQ(device_->Recover(), absl::OkStatus());
  EXPECT_EQ(device_->memory_used(), 0) << "of the new generation";
  before = {};
  const BufferView fresh = Buffer(4);
  EXPECT_EQ(device_->queue().Submit(commands, {fresh}, {})->Wait(), absl::OkStatus());
  device_.reset();
  commands = nullptr;
  next = {};
  program = nullptr;
  in_between = {};
  if (GetParam().problems) EXPECT_EQ(GetParam().problems(), "");
}

}  // namespace
}  // namespace telegrad
