// The queue in front of a real queue of a device, with threads that submit.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/host_queue.h"
#include "tests/server/fair_queue_fixture.h"

namespace telegrad {
namespace {

// What runs commands that are functions.
class FunctionRunner final : public QueueRunner {
 public:
  struct Commands : CommandBuffer {
    std::function<absl::Status()> run;
  };
  absl::Status Check(const CommandBuffer*, std::span<const BufferView>) const override {
    return absl::OkStatus();
  }
  bool IsQuick(const CommandBuffer&, std::span<const uint64_t>) const override { return true; }
  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView>,
                   const RunControl&) override {
    return static_cast<const Commands&>(commands).run();
  }
};

SlicedWork Calling(std::function<absl::Status()> run, int slices = 1) {
  auto commands = std::make_shared<FunctionRunner::Commands>();
  commands->run = std::move(run);
  auto all = std::make_shared<std::vector<RunSlice>>();
  for (int i = 0; i < slices; ++i) all->push_back({commands, 1e-6});
  SlicedWork work;
  work.slices = std::move(all);
  return work;
}

TEST(FairQueueOnDevice, AnIdleDeviceRunsShortWorkOnItsSubmitter) {
  HostQueue device({.name = "fake"}, std::make_unique<FunctionRunner>());
  FairQueue queue(&device);
  const auto lane = queue.NewLane(std::make_shared<Share>());
  std::thread::id ran;
  const TimelinePoint point = queue.Submit(lane, Calling([&] {
                                             ran = std::this_thread::get_id();
                                             return absl::OkStatus();
                                           }));
  EXPECT_TRUE(IsOver(point));
  EXPECT_EQ(ran, std::this_thread::get_id());
}

// Sessions of several tenants on threads of their own, with chains, failures and cancellations:
// every work ends exactly once and as it should, and the order within a session is kept.
TEST(FairQueueOnDevice, ManyThreads) {
  HostQueue device({.name = "fake"}, std::make_unique<FunctionRunner>());
  auto queue = std::make_unique<FairQueue>(&device);
  std::atomic<int> wrong = 0, ended = 0;
  constexpr int kThreads = 4, kWorks = 3000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto share = std::make_shared<Share>("t", 1 + t);
      const auto lane = queue->NewLane(share);
      int ran = 0;  // not atomic: the device runs one at a time
      bool last_fails = false;
      TimelinePoint last;
      for (int i = 0; i < kWorks; ++i) {
        const bool fails = i % 11 == 3;
        SlicedWork work = Calling(
            [&, i, fails] {
              if (ran > i) ++wrong;
              ran = i;
              return fails ? absl::InternalError("as told") : absl::OkStatus();
            },
            1 + i % 3);
        const bool waits = i % 5 == 0 || i % 11 == 4;
        if (waits) work.waits = {last};
        last_fails = fails || (waits && last_fails);
        const absl::StatusCode expected =
            last_fails ? absl::StatusCode::kInternal : absl::StatusCode::kOk;
        last = queue->Submit(lane, std::move(work));
        last.timeline->OnReached(1, [&, expected](const absl::Status& status) {
          ++ended;
          if (status.code() != expected) ++wrong;
        });
        if (i % 64 == 0) last.Wait().IgnoreError();
      }
      last.Wait().IgnoreError();
      queue->Drained().Wait().IgnoreError();
    });
  }
  for (std::thread& thread : threads) thread.join();
  queue = nullptr;
  EXPECT_EQ(ended, kThreads * kWorks);
  EXPECT_EQ(wrong, 0);
}

// A client may have as many works wait for each other as its operations reach: the failure of the
// first must not take stack for each.
TEST(FairQueueOnDevice, ALongChainFailsWithoutRecursion) {
  HostQueue device({.name = "fake"}, std::make_unique<FunctionRunner>());
  FairQueue queue(&device);
  const auto lane = queue.NewLane(std::make_shared<Share>());
  const TimelinePoint first{std::make_shared<Timeline>(), 1};
  TimelinePoint last = first;
  for (int i = 0; i < 200'000; ++i) {
    SlicedWork work = Calling([] { return absl::OkStatus(); });
    work.waits = {last};
    last = queue.Submit(lane, std::move(work));
  }
  first.timeline->Signal(1, absl::InternalError("as told"));
  EXPECT_EQ(last.Wait().code(), absl::StatusCode::kInternal);
}

TEST(FairQueueOnDevice, ClosingEndsEverything) {
  HostQueue device({.name = "fake"}, std::make_unique<FunctionRunner>());
  auto queue = std::make_unique<FairQueue>(&device);
  const auto lane = queue->NewLane(std::make_shared<Share>());
  const TimelinePoint never{std::make_shared<Timeline>(), 1};
  SlicedWork work = Calling([] { return absl::OkStatus(); });
  work.waits = {never};
  const TimelinePoint blocked = queue->Submit(lane, std::move(work));
  const TimelinePoint behind = queue->Submit(lane, Calling([] { return absl::OkStatus(); }));
  queue = nullptr;
  EXPECT_EQ(blocked.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(behind.Wait().code(), absl::StatusCode::kCancelled);
  never.timeline->Signal(1);  // comes too late, and finds nobody
}

}  // namespace
}  // namespace telegrad
