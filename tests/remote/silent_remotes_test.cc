// A far server that answers without end, or takes nothing more off its connection while it says
// that it is well: what waits for it ends in its time, and the next use works.
#include <atomic>
#include <thread>

#include "engine/base/device_lost.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/manual_clock.h"
#include "tests/remote/fake_server.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class SilentRemotes : public ::testing::Test {
 protected:
  ~SilentRemotes() override {
    devices_.clear();
    server_.Shutdown();
  }
  Device& Open() {
    auto devices = OpenRemote(options_, nullptr);
    EXPECT_TRUE(devices.ok()) << devices.status();
    devices_ = *std::move(devices);
    return *devices_[0];
  }

  FakeServer server_;
  RemoteOptions options_ = server_.Options("r");
  std::unique_ptr<Device> host_ = OpenHost();
  std::vector<std::unique_ptr<Device>> devices_;
};

// The first answer to a read is one, and what follows is none. Each has 64 KiB: were they kept,
// the server could write gigabytes before its connection is closed to it.
TEST_F(SilentRemotes, AnswersWithoutEndEndTheSession) {
  constexpr int64_t kAnswer = 64 << 10, kMost = 64 << 20;
  const auto written = std::make_shared<std::atomic<int64_t>>(0);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  server_.compute.answer = [=](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    v1::ExecuteResponse response;
    response.set_op_id(request.op_id());
    response.mutable_read()->set_last(true);
    response.set_data(std::string(request.read().bytes(), 'x'));
    const bool endless = !*ended;
    while (stream->Write(response) && endless && *written < 16 * kMost) *written += kAnswer;
    *ended = true;
  };
  Device& device = Open();
  const BufferView memory = Whole(*device.Alloc(kAnswer));
  const BufferView out = HostBuffer(*host_, std::string(kAnswer, '?'));
  const auto read = Copy(device, out, memory);
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::Status first = read->Wait(absl::Seconds(60));
  EXPECT_TRUE(first.ok() || IsDeviceLost(first)) << first;
  ASSERT_TRUE(Becomes([&] { return ended->load(); }));
  EXPECT_LT(*written, kMost);
  // What was there is lost, with an error that says why.
  absl::Status lost;
  ASSERT_TRUE(Becomes([&] {
    const auto again = Copy(device, out, memory);
    lost = again.ok() ? again->Wait(absl::Seconds(60)) : again.status();
    return !lost.ok();
  }));
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
  EXPECT_TRUE(IsDeviceLost(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("r is lost"));
  // And another session is well.
  const BufferView fresh = Whole(*device.Alloc(kAnswer));
  EXPECT_EQ(Copy(device, out, fresh)->Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(Bytes(out), std::string(kAnswer, 'x'));
  EXPECT_EQ(device.generation(), 2u);
}

// Its handler may outlive the test.
struct Blocked {
  std::atomic<bool> blocks = true;
  static std::function<void(const v1::ExecuteRequest&, FakeCompute::Stream*)> By(
      const std::shared_ptr<Blocked>& self) {
    return [self](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
      while (request.has_write() && self->blocks) std::this_thread::yield();
      if (request.has_sync()) FakeServer::Answer(request, stream);
      if (request.has_read()) {
        FakeServer::Answer(request, stream, [&](auto& r) {
          r.mutable_read()->set_offset(request.read().offset());
          r.mutable_read()->set_last(true);
          r.set_data(std::string(request.read().bytes(), 'y'));
        });
      }
    };
  }
};

// With all the time there is for the server, so that it is not lost: what cannot even be sent ends
// by its own deadline and names the device, whether it would have written there or read. The server
// goes on later, and so does what waited without a deadline.
TEST_F(SilentRemotes, CopiesBehindOneThatStopsReadingEndByTheirDeadline) {
  constexpr int kCopies = 2500;         // more than a session queues
  constexpr int64_t kBytes = 64 << 10;  // too few for a connection of their own
  const auto blocked = std::make_shared<Blocked>();
  server_.compute.answer = Blocked::By(blocked);
  options_.grace = absl::Hours(1);
  options_.queue_capacity = 2 * kCopies;
  Device& device = Open();
  const BufferView there = Whole(*device.Alloc(kBytes));
  const BufferView from = HostBuffer(*host_, std::string(kBytes, 'x'));
  const auto commands =
      *device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = kBytes})});
  TimelinePoint last;
  for (int i = 0; i < kCopies; ++i) {
    const auto point = device.queue(QueueKind::kCopy).Submit(commands, {there, from}, {});
    ASSERT_TRUE(point.ok()) << point.status();
    last = *point;
  }
  fakes::ManualClock clock;
  const auto deadline = std::make_shared<Cancellation>(nullptr, &clock, clock.Ns() + 1);
  const BufferView small = HostBuffer(*host_, "1234"), out = HostBuffer(*host_, "????");
  const auto four = *device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = 4})});
  const auto upload = device.queue().Submit(four, {there, small}, {}, nullptr, deadline);
  const auto download = device.queue().Submit(four, {out, there}, {}, nullptr, deadline);
  ASSERT_TRUE(upload.ok() && download.ok());
  EXPECT_EQ(upload->timeline->value(), 0u);
  clock.Advance(1);
  for (const TimelinePoint& point : {*upload, *download}) {
    const absl::Status ended = point.Wait(absl::Seconds(60));
    EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded) << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("the run's timeout has passed; r/CPU:0"));
    EXPECT_THAT(std::string(ended.message()),
                HasSubstr("the server at " + options_.address + " takes nothing more"));
  }
  EXPECT_EQ(last.timeline->value(), 0u) << "it has stopped reading";
  EXPECT_EQ(Bytes(out), "????");
  EXPECT_EQ(device.Health(), absl::OkStatus());
  EXPECT_EQ(device.generation(), 1u) << "nothing is lost";
  blocked->blocks = false;
  EXPECT_EQ(last.Wait(absl::Seconds(60)), absl::OkStatus());
  // The memory of the host that an ended read would have written is free for another.
  const BufferView begin{there.memory, 0, 4};
  EXPECT_EQ(Copy(device, out, begin)->Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "yyyy");
}

// What is on its way, from memory that its owner may use again once it has ended, ends with the
// session, when the server has had its time after the deadline.
TEST_F(SilentRemotes, ACopyOnItsWayEndsAfterItsDeadlineAndTheGrace) {
  const auto blocked = std::make_shared<Blocked>();
  server_.compute.answer = Blocked::By(blocked);
  options_.grace = absl::Milliseconds(100);
  Device& device = Open();
  const BufferView there = Whole(*device.Alloc(4));
  const BufferView from = HostBuffer(*host_, "1234");
  const auto commands = *device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = 4})});
  fakes::ManualClock clock;
  const auto deadline = std::make_shared<Cancellation>(nullptr, &clock, clock.Ns() + 1);
  const auto point = device.queue().Submit(commands, {there, from}, {}, nullptr, deadline);
  ASSERT_TRUE(point.ok()) << point.status();
  clock.Advance(1);
  const absl::Status ended = point->Wait(absl::Seconds(60));
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_TRUE(IsDeviceLost(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("r is lost (generation 1)"));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("within the time that it has to answer"));
  blocked->blocks = false;
  const BufferView fresh = Whole(*device.Alloc(4)), out = HostBuffer(*host_, "????");
  EXPECT_EQ(Copy(device, out, fresh)->Wait(absl::Seconds(60)), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
