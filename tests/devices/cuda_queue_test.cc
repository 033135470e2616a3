// The two queues of a GPU, on the fake driver: the order of work within and between them, which
// work a fault fails, and when a GPU counts as stuck.
#include <atomic>
#include <random>
#include <thread>

#include "devices/api/trace.h"
#include "engine/base/device_lost.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Across its queues, and copies of the host's bytes among launches.
TEST_F(Cuda, QueuesWaitForEachOtherOnTheGpu) {
  Open();
  const BufferView buffer = Buffer(1), out = HostBuffer(*host_, "?");
  const auto commands = *device().Encode({NextCommand(Next())});
  TimelinePoint before = Write(buffer, "a");
  for (int i = 0; i < 5; ++i) {
    const TimelinePoint waits[] = {before};
    const TimelinePoint ran = *device().queue().Submit(commands, {buffer}, waits);
    before = *Copy(device(), out, buffer, {ran});
  }
  EXPECT_EQ(before.Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "f");
}

// Reached before the thread looks, after it has, or in between.
TEST_F(Cuda, AWaitMayBeReachedAtAnyTime) {
  Open();
  const BufferView to = Buffer(1), from = Buffer(1);
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto spin = [](int64_t ns) {
    const int64_t until = SteadyNs() + ns;
    while (SteadyNs() < until) {
    }
  };
  std::atomic<Timeline*> next = nullptr;
  std::atomic<int64_t> delay_ns = 0;
  std::atomic<bool> done = false;
  std::thread reaches([&] {
    while (!done.load()) {
      Timeline* const timeline = next.exchange(nullptr);
      if (timeline == nullptr) continue;
      spin(delay_ns.load());
      timeline->Signal(1);
    }
  });
  absl::Status status;
  for (int i = 0; i < 2'000 && status.ok(); ++i) {
    spin(50'000);  // the queue's thread goes to sleep
    const auto timeline = std::make_shared<Timeline>();
    delay_ns = static_cast<int64_t>(random() % 100'000);
    next = timeline.get();
    const auto point = Copy(device(), to, from, {{timeline, 1}});
    while (timeline->value() == 0) {  // all processors are busy, so that the thread is interrupted
    }
    status = point.ok() ? point->Wait(absl::Seconds(30)) : point.status();
  }
  done = true;
  reaches.join();
  EXPECT_EQ(status, absl::OkStatus());
}

// What waits for the GPU when it faults, on either queue, ends with the reason.
TEST_F(Cuda, AFaultReachesWhatWaits) {
  Open();
  const BufferView buffer = Buffer(1), out = HostBuffer(*host_, "?");
  const auto commands = *device().Encode({NextCommand(Next())});
  const Gate gate;
  const TimelinePoint waits[] = {gate.point()};
  fake_.Set("fault_launch", 1);
  const TimelinePoint ran = *device().queue().Submit(commands, {buffer}, waits);
  const TimelinePoint copied = *Copy(device(), out, buffer, {ran});
  const TimelinePoint there = *Copy(*host_, HostBuffer(*host_, "?"), out, {copied});
  gate.Open();
  EXPECT_EQ(ran.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(copied.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(there.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Bytes(out), "?");
}

TEST_F(Cuda, AStuckGpuIsGivenUp) {
  CudaOptions options = FakeOptions();
  options.hang_limit = absl::Milliseconds(20);
  Open(options);
  const BufferView buffer = Buffer(1);
  fake_.Set("hang_launch", 1);
  const absl::Status stuck = Run({NextCommand(Next())}, {buffer});
  EXPECT_EQ(stuck.code(), absl::StatusCode::kUnavailable) << stuck;
  EXPECT_THAT(std::string(stuck.message()),
              AllOf(HasSubstr("CUDA:0 compute (generation 1) is stuck"), HasSubstr("20ms")));
  EXPECT_EQ(device().Health(), stuck);
  EXPECT_EQ(device().Alloc(1).status(), stuck);
  EXPECT_EQ(device(1).Health(), absl::OkStatus());
  // While the kernel is at it, the driver gives nothing back.
  const absl::Status refused = device().Recover();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("CUDA:0 is still at work"));
  EXPECT_EQ(device().Recover(), refused);
  EXPECT_EQ(device().Health(), stuck);
  devices_.clear();  // waits for nothing
  fake_.Release();
}

// A kernel that has ended after all, as each does under a driver's watchdog.
TEST_F(Cuda, AGpuThatWasStuckComesBack) {
  CudaOptions options = FakeOptions();
  options.hang_limit = absl::Milliseconds(400);  // more than a busy machine takes
  Open(options);
  const BufferView buffer = Buffer(1);
  const auto commands = *device().Encode({NextCommand(Next())});
  std::weak_ptr<Memory> held;
  {
    const BufferView out = HostBuffer(*host_, "?");
    held = out.memory;
    fake_.Set("hang_launch", 1);
    const auto ran = device().queue().Submit(commands, {buffer}, {});
    const auto copied = Copy(device(), out, buffer, {*ran}, QueueKind::kCompute);
    EXPECT_EQ(ran->Wait().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(copied->Wait().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(device().Recover().code(), absl::StatusCode::kUnavailable);
  fake_.Release();
  absl::Status recovered;
  do {
    recovered = device().Recover();
  } while (absl::IsUnavailable(recovered));
  EXPECT_EQ(recovered, absl::OkStatus());
  EXPECT_EQ(device().generation(), 2u);
  EXPECT_TRUE(held.expired()) << "what the GPU might have written is given back";
  const auto lost = device().queue().Submit(commands, {buffer}, {});
  EXPECT_TRUE(IsDeviceLost(lost.status())) << lost.status();
  const BufferView fresh = Buffer(1);
  EXPECT_EQ(device().queue().Submit(commands, {fresh}, {})->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(fresh), "\1");
  EXPECT_EQ(Unasked(fake_.Problems()), "");
}

// What a peer does with the memory of a GPU that is reset ends before that.
TEST_F(Cuda, AResetWaitsForCopiesOfPeers) {
  Open();
  const BufferView there = Buffer(1), here = Buffer(1, 1);
  const auto on_peer = *device(1).Encode({NextCommand(Next(1))});
  const auto on_this = *device().Encode({NextCommand(Next())});
  fake_.Set("hang_launch", 1);
  const TimelinePoint before = *device(1).queue().Submit(on_peer, {here}, {});
  const TimelinePoint copied = *Copy(device(1), there, here, {before}, QueueKind::kCompute);
  fake_.Set("fault_launch", 1);
  EXPECT_FALSE(device().queue().Submit(on_this, {Buffer(1)}, {})->Wait().ok());
  bool ended_first = false;
  std::atomic<bool> over = false;
  std::thread recovers([&] {
    EXPECT_EQ(device().Recover(), absl::OkStatus());
    ended_first = copied.timeline->value() >= copied.value;
    over = true;
  });
  // Until it is taken away, and for as long as a reset that did not wait would take.
  const int64_t begin = SteadyNs();
  while (!over && SteadyNs() - begin < 50'000'000) std::this_thread::yield();
  fake_.Release();
  recovers.join();
  EXPECT_TRUE(ended_first);
  EXPECT_EQ(copied.Wait(), absl::OkStatus());
  const auto late = Copy(device(1), there, here);
  EXPECT_TRUE(IsDeviceLost(late.status())) << late.status();
  EXPECT_EQ(device(1).Health(), absl::OkStatus());
  EXPECT_EQ(device(1).queue().Submit(on_peer, {here}, {})->Wait(), absl::OkStatus());
  EXPECT_EQ(Unasked(fake_.Problems()), "");
}

// Work of one queue that ends all the time is not an end of what waits for it on the other.
TEST_F(Cuda, WaitingForABusyQueueIsNotBeingStuck) {
  const auto run = [this](int64_t iterations) {
    Command next = NextCommand(Next());
    next.launch.grid.x = iterations;
    return *device().Encode({next});
  };
  constexpr int64_t kIterations = 20'000;
  Open();
  const int64_t begin = SteadyNs();
  EXPECT_EQ(device().queue().Submit(run(kIterations), {Buffer(kIterations)}, {})->Wait(),
            absl::OkStatus());
  const absl::Duration once = absl::Nanoseconds(SteadyNs() - begin);

  devices_.clear();
  CudaOptions options = FakeOptions();
  options.hang_limit = 20 * once;
  Open(options);
  const BufferView buffer = Buffer(kIterations), out = HostBuffer(*host_, "?");
  const auto commands = run(kIterations);
  TimelinePoint last;
  for (int i = 0; i < 60; ++i) last = *device().queue().Submit(commands, {buffer}, {});
  EXPECT_EQ(Copy(device(), out, {buffer.memory, 0, 1}, {last})->Wait(), absl::OkStatus());
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
