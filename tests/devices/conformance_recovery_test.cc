// Generations: what is lost with a device, and what goes on when it is back; see conformance.h.
#include "engine/base/device_lost.h"
#include "engine/base/status.h"
#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_P(Conformance, AHealthyDeviceIsNotRecovered) {
  OpenDevice();
  EXPECT_EQ(device_->generation(), 1u);
  EXPECT_EQ(device_->memory_generation(), 1u);
  const absl::Status status = device_->Recover();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(device_->name()));
  EXPECT_EQ(device_->generation(), 1u);
}

class Recovery : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    if (GetParam().fault == nullptr) {
      GTEST_SKIP() << "nothing makes this device be lost";
    }
    OpenDevice({.impatient = true});
    const auto program = device_->Load(*GetParam().next());
    ASSERT_TRUE(program.ok()) << program.status();
    Command next;
    next.launch = Launch::Of(*program);
    next.launch.arguments = {{0, 0}};
    const auto commands = device_->Encode({next, next});
    ASSERT_TRUE(commands.ok()) << commands.status();
    commands_ = *commands;
  }
  void TearDown() override {
    if (!IsSkipped() && GetParam().problems) EXPECT_EQ(GetParam().problems(), "");
  }

  // Adds 2 to the first byte.
  absl::Status Run(const BufferView& buffer) {
    const auto point = device_->queue().Submit(commands_, {buffer}, {});
    return point.ok() ? point->Wait() : point.status();
  }
  absl::Status CopyTo(const BufferView& buffer) {
    const auto point = Copy(*device_, buffer, HostBuffer(*host_, "more"));
    return point.ok() ? point->Wait() : point.status();
  }
  // That of a loss, which is told from others of its code, and names device and generation.
  void ExpectLost(const absl::Status& status, uint64_t generation) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(IsDeviceLost(status)) << status;
    const std::string& given = GetParam().lost_name;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(given.empty() ? device_->name() : given),
                      HasSubstr(StrCat("generation ", generation))));
  }
  // One that comes back by itself may have done so before it is asked.
  void ComeBack() {
    if (GetParam().repair) GetParam().repair();
    const absl::Status status = device_->Recover();
    if (GetParam().repair && absl::IsFailedPrecondition(status)) return;
    ASSERT_EQ(status, absl::OkStatus());
  }

  std::shared_ptr<const CommandBuffer> commands_;
};

TEST_P(Recovery, ComesBackAsANewGeneration) {
  const bool keeps = GetParam().keeps_memory;
  BufferView old = Buffer(4);
  ASSERT_EQ(Run(old), absl::OkStatus());
  for (uint64_t lost = 1; lost < 4; ++lost) {
    SCOPED_TRACE(lost);
    Gate gate;
    const TimelinePoint waiting = Copied(Buffer(4), HostBuffer(*host_, "wait"), {gate.point()});
    GetParam().fault();
    ExpectLost(Run(old), lost);
    ExpectLost(device_->Health(), lost);
    ExpectLost(Run(old), lost);
    EXPECT_EQ(device_->generation(), lost);
    if (keeps) {
      gate.Open();
      EXPECT_EQ(waiting.Wait(), absl::OkStatus());
    } else {
      ExpectLost(waiting.Wait(), lost);  // what had not ended
      ExpectLost(device_->Alloc(1).status(), lost);
    }

    ASSERT_NO_FATAL_FAILURE(ComeBack());
    EXPECT_EQ(device_->generation(), lost + 1);
    EXPECT_EQ(device_->memory_generation(), keeps ? 1 : lost + 1);
    EXPECT_EQ(device_->Health(), absl::OkStatus());
    if (keeps) {
      ExpectBytes(old, std::string("\2\0\0\0", 4));
      EXPECT_EQ(old.memory->Health(), absl::OkStatus());
    } else {
      // Its memory is gone, and says of which generation it is, on either queue.
      ExpectLost(Run(old), lost);
      ExpectLost(CopyTo(old), lost);
      ExpectLost(old.memory->Health(), lost);
    }
    // Programs and commands go on.
    const BufferView fresh = Buffer(4);
    ASSERT_EQ(Run(fresh), absl::OkStatus());
    ExpectBytes(fresh, std::string("\2\0\0\0", 4));
    old = fresh;
  }
}

// It is the process's: its bytes stay, while the device is lost and when it is back.
TEST_P(Recovery, PinnedMemoryHasItsContents) {
  if (!device_->Makes(MemoryKind::kPinnedHost)) GTEST_SKIP() << "it pins no memory";
  const auto pinned = device_->AllocOf(MemoryKind::kPinnedHost, 5000);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  ASSERT_EQ(Copied({*pinned, 4990, 4}, HostBuffer(*host_, "stay")).Wait(), absl::OkStatus());
  const auto bytes = [&] { return Bytes({*pinned, 4988, 8}); };
  const std::string expected("\0\0stay\0\0", 8);
  EXPECT_EQ(bytes(), expected);
  GetParam().fault();
  ExpectLost(Run(Buffer(4)), 1);
  EXPECT_EQ((*pinned)->Health(), absl::OkStatus());
  EXPECT_EQ(bytes(), expected);
  ASSERT_NO_FATAL_FAILURE(ComeBack());
  EXPECT_EQ((*pinned)->Health(), absl::OkStatus());
  EXPECT_EQ(bytes(), expected);
  // And the device copies from and to it.
  const BufferView fresh = Buffer(4);
  EXPECT_EQ(Copied(fresh, {*pinned, 4990, 4}).Wait(), absl::OkStatus());
  ExpectBytes(fresh, "stay");
  EXPECT_EQ(Copied({*pinned, 0, 4}, fresh).Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes({*pinned, 0, 5}), std::string("stay\0", 5));
}

// While it cannot come back it says why, as often as it is asked.
TEST_P(Recovery, IsAskedAgain) {
  if (GetParam().repair == nullptr) GTEST_SKIP() << "nothing keeps this device from coming back";
  const BufferView buffer = Buffer(4);
  GetParam().fault();
  ExpectLost(Run(buffer), 1);
  for (int i = 0; i < 3; ++i) {
    const absl::Status refused = device_->Recover();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
    EXPECT_EQ(device_->generation(), 1u);
  }
  ASSERT_NO_FATAL_FAILURE(ComeBack());
  EXPECT_EQ(Run(Buffer(4)), absl::OkStatus());
}

// Of a loss, objects are left that are dropped in any order, with the device or after it.
TEST_P(Recovery, WhatIsLeftOfALossIsDroppedLater) {
  BufferView before = Buffer(1 << 20), in_between = Buffer(8);
  GetParam().fault();
  ExpectLost(Run(before), 1);
  ASSERT_NO_FATAL_FAILURE(ComeBack());
  if (!GetParam().keeps_memory) {
    EXPECT_EQ(device_->memory_used(), 0) << "of the new generation";
  }
  before = {};
  const BufferView fresh = Buffer(4);
  EXPECT_EQ(Run(fresh), absl::OkStatus());
  EXPECT_GE(device_->memory_used(), 4);
  // The program is loaded again.
  EXPECT_LT(device_->memory_used(), 1 << 20) << "what was dropped is not counted twice";
  device_.reset();
  commands_ = nullptr;
  in_between = {};
}

INSTANTIATE_TEST_SUITE_P(Drivers, Recovery, ::testing::ValuesIn(AllDrivers()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
