// A buffer in memory that the host cannot address is copied to the host before it is sent, after
// the earlier work of its device. That may take long; a client that cancels does not wait for
// it.
#include "server/data/staging.h"
#include "tests/fakes/loopback/loopback_device.h"
#include "tests/server/peers_fixture.h"

namespace telegrad {
namespace {

constexpr QueueKind kKinds[] = {QueueKind::kCompute, QueueKind::kCopy};

class StagedPeersTest : public PeersTest {
 protected:
  StagedPeersTest() {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(OpenLoopback(
        {.inner = *OpenCpu({.threads = 1, .memory_limit = 64 << 20}), .load = nullptr}));
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}};
  }
  // The device has this to wait for before anything else.
  void Hold(const TimelinePoint& open) {
    const std::shared_ptr<Memory> memory = *device_->Alloc(64);
    const Command copy{
        .kind = CommandKind::kCopy,
        .launch = {},
        .copy = {
            .to = {.binding = 0, .offset = 0}, .from = {.binding = 1, .offset = 0}, .length = 8}};
    const auto commands = *device_->Encode({copy});
    for (const QueueKind kind : kKinds) {
      ASSERT_TRUE(device_->queue(kind)
                      .Submit(commands, {Part(memory, 0, 8), Part(memory, 32, 8)}, {{open}})
                      .ok());
    }
  }
  uint64_t submitted() const {
    uint64_t sum = 0;
    for (const QueueKind kind : kKinds) sum += device_->queue(kind).last().value;
    return sum;
  }
};

TEST_F(StagedPeersTest, ACancelledSendDoesNotWaitForItsDevice) {
  Submit(AllocOp{1, 4, device_->name()});
  Write(1, "1234");
  ASSERT_TRUE(Sync().ok());
  const TimelinePoint open{std::make_shared<Timeline>(), 1};
  Hold(open);
  const uint64_t before = submitted();
  const uint64_t sent = Submit(SendOf(1, 0, 4, Admit(4), address()));
  sink_->Await([&] { return submitted() > before; });  // the copy of its first chunk
  session().Cancel(*sink_, ++last_id_, sent, sent);
  EXPECT_EQ(StatusOf(sent).code(), absl::StatusCode::kCancelled);
  EXPECT_GT(tenant_->accounts[Quota::kHostStaging].used(), 0) << "that of the copy, until its end";
  open.timeline->Signal(1);
  Write(1, "5678");
  EXPECT_EQ(Bytes(Read(1, 4)), "5678");
}

}  // namespace
}  // namespace telegrad
