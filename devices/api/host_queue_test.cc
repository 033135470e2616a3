// Who runs what: a submission that is quick and has nothing before it is run by its submitter,
// everything else by the queue's thread, and the order is that of the submissions all the same.
#include "devices/api/host_queue.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/burst.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

struct FakeCommands : CommandBuffer {
  explicit FakeCommands(QueueCapability needs = {}) { needs_ = needs; }
  bool quick = true;
  std::function<absl::Status()> run;
};

class FakeRunner final : public QueueRunner {
 public:
  absl::Status Check(const CommandBuffer*, std::span<const BufferView>) const override {
    return absl::OkStatus();
  }
  bool IsQuick(const CommandBuffer& commands, std::span<const uint64_t>) const override {
    return static_cast<const FakeCommands&>(commands).quick;
  }
  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView>,
                   const RunControl&) override {
    EXPECT_FALSE(running_.exchange(true)) << "two at a time";
    absl::Status status = static_cast<const FakeCommands&>(commands).run();
    running_.store(false);
    return status;
  }

 private:
  std::atomic<bool> running_{false};
};

struct Fixture {
  explicit Fixture(bool spins = false)
      : queue({.name = "fake", .spins = spins}, std::make_unique<FakeRunner>()) {}

  HostQueue queue;

  TimelinePoint Submit(std::function<absl::Status()> run, bool quick = true,
                       std::vector<TimelinePoint> waits = {}) {
    auto commands = std::make_shared<FakeCommands>();
    commands->quick = quick;
    commands->run = std::move(run);
    return *queue.Submit(std::move(commands), {}, waits);
  }
};

bool IsReached(const TimelinePoint& point) { return point.timeline->value() >= point.value; }

TEST(HostQueue, RefusesWhatItDoesNotTake) {
  const auto submit = [](QueueCapability takes, QueueCapability needs) {
    HostQueue queue({.name = "fake", .takes = takes}, std::make_unique<FakeRunner>());
    auto commands = std::make_shared<FakeCommands>(needs);
    commands->run = [] { return absl::OkStatus(); };
    const auto point = queue.Submit(std::move(commands), {}, {});
    EXPECT_EQ(queue.last().value, point.ok() ? 1u : 0u);
    return point.status();
  };
  constexpr QueueCapability kComputesOnly{.compute = true};
  EXPECT_EQ(submit(kComputesAndCopies, kComputesAndCopies), absl::OkStatus());
  EXPECT_EQ(submit(kComputesOnly, kComputesOnly), absl::OkStatus());
  EXPECT_EQ(submit(kCopiesOnly, kCopiesOnly), absl::OkStatus());
  EXPECT_EQ(submit(kCopiesOnly, {}), absl::OkStatus()) << "no commands at all";
  EXPECT_EQ(
      submit(kCopiesOnly, kComputesAndCopies),
      absl::InvalidArgumentError("fake: a launch was submitted to a queue that takes copies only"));
  EXPECT_EQ(
      submit(kComputesOnly, kComputesAndCopies),
      absl::InvalidArgumentError("fake: a copy was submitted to a queue that takes launches only"));
}

TEST(HostQueue, QuickWorkIsDoneWhenSubmitReturns) {
  Fixture f;
  std::thread::id ran;
  const auto run = [&] {
    ran = std::this_thread::get_id();
    return absl::OkStatus();
  };
  const TimelinePoint quick = f.Submit(run);
  EXPECT_TRUE(IsReached(quick));
  EXPECT_EQ(ran, std::this_thread::get_id());
  EXPECT_EQ(f.Submit(run, /*quick=*/false).Wait(), absl::OkStatus());
  EXPECT_NE(ran, std::this_thread::get_id());
}

TEST(HostQueue, WorkOfASubmitterThatWaitsRunsOnItsThread) {
  Fixture f;
  std::thread::id ran;
  const auto commands = std::make_shared<FakeCommands>();
  commands->quick = false;
  commands->run = [&] {
    ran = std::this_thread::get_id();
    return absl::OkStatus();
  };
  const QueueWork work{
      .commands = commands, .bindings = {}, .scalars = {}, .submitter_waits = true};
  EXPECT_TRUE(IsReached(*f.queue.Submit(work, {})));
  EXPECT_EQ(ran, std::this_thread::get_id());
  // Not before what is submitted already.
  const TimelinePoint open{std::make_shared<Timeline>(), 1};
  f.Submit([] { return absl::OkStatus(); }, /*quick=*/false, {open});
  const TimelinePoint behind = *f.queue.Submit(work, {});
  EXPECT_FALSE(IsReached(behind));
  open.timeline->Signal(1);
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
  EXPECT_NE(ran, std::this_thread::get_id());
}

TEST(HostQueue, QuickWorkStaysBehindWhatIsBeforeIt) {
  Fixture f;
  std::vector<int> order;
  const TimelinePoint open{std::make_shared<Timeline>(), 1};
  const auto add = [&order](int i) {
    return [&order, i] {
      order.push_back(i);
      return absl::OkStatus();
    };
  };
  f.Submit(add(1), /*quick=*/false, {open});
  const TimelinePoint second = f.Submit(add(2));
  EXPECT_FALSE(IsReached(second));
  open.timeline->Signal(1);
  EXPECT_EQ(second.Wait(), absl::OkStatus());
  EXPECT_EQ(order, (std::vector{1, 2}));
}

TEST(HostQueue, QuickWorkWaitsForItsPointsOnTheQueuesThread) {
  Fixture f;
  const TimelinePoint open{std::make_shared<Timeline>(), 1};
  const TimelinePoint point = f.Submit([] { return absl::OkStatus(); }, true, {open});
  EXPECT_FALSE(IsReached(point));
  open.timeline->Signal(1, absl::DataLossError("lost"));
  EXPECT_EQ(point.Wait().code(), absl::StatusCode::kDataLoss);
  // A point that failed before fails quick work too.
  const TimelinePoint behind = f.Submit([] { return absl::OkStatus(); }, true, {point});
  EXPECT_EQ(behind.Wait().code(), absl::StatusCode::kDataLoss);
}

// What the ends of quick work put off is done once for all of them, and before longer work begins.
TEST(HostQueue, EndsOfQuickWorkAreToldTogether) {
  struct Told final : Burst::Part {
    void EndOfBurst() override { ++times; }
    std::atomic<int> times = 0;
  };
  const auto told = std::make_shared<Told>();
  Fixture f;
  const TimelinePoint open{std::make_shared<Timeline>(), 1};
  const auto put_off = [&](const absl::Status&) { EXPECT_TRUE(Burst::PutOff(told)); };
  const auto work = [] { return absl::OkStatus(); };
  f.Submit(work, /*quick=*/false, {open});
  for (int i = 0; i < 3; ++i) {
    const TimelinePoint point = f.Submit(work);
    point.timeline->OnReached(point.value, put_off);
  }
  int before = -1;
  const auto look = [&] {
    before = told->times;
    return absl::OkStatus();
  };
  const TimelinePoint last = f.Submit(look, /*quick=*/false);
  open.timeline->Signal(1);
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_GE(before, 1) << "before work that is not quick";
  EXPECT_LE(before, 2) << "three ends: together, or in two parts on a machine that is very slow";
  // And before the thread waits: for work, and for a point.
  const TimelinePoint far{std::make_shared<Timeline>(), 1};
  const TimelinePoint quick = f.Submit(work, true, {last, far});
  quick.timeline->OnReached(quick.value, put_off);
  f.Submit(work, true, {far});
  far.timeline->Signal(1);
  EXPECT_EQ(f.queue.last().Wait(), absl::OkStatus());
  while (told->times == before) std::this_thread::yield();
}

TEST(HostQueue, WhatQuickWorkCallsBackMaySubmitMore) {
  Fixture f;
  TimelinePoint next;
  f.Submit([&] {
    next = f.Submit([] { return absl::OkStatus(); });
    EXPECT_FALSE(IsReached(next));
    return absl::OkStatus();
  });
  EXPECT_EQ(next.Wait(), absl::OkStatus());
}

TEST(HostQueue, ManySubmittersRunOneAtATime) {
  Fixture f;
  int ran = 0;  // not atomic: each run sees what the one before it did
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const TimelinePoint point = f.Submit(
            [&] {
              ++ran;
              return absl::OkStatus();
            },
            (i + t) % 3 != 0);
        if (i % 7 == 0) {
          EXPECT_EQ(point.Wait(), absl::OkStatus());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.queue.last().Wait(), absl::OkStatus());
  EXPECT_EQ(ran, 8000);
}

// The thread that looks while submitters come and go finds work, then none, and must not take that
// for the end.
TEST(HostQueue, TheThreadStaysWhileSubmittersRunTheirOwn) {
  for (int round = 0; round < 20; ++round) {
    Fixture f(/*spins=*/true);
    const auto work = [&] {
      for (int i = 0; i < 5000; ++i) f.Submit([] { return absl::OkStatus(); });
    };
    std::thread other(work);
    work();
    other.join();
    const TimelinePoint last = f.Submit([] { return absl::OkStatus(); }, /*quick=*/false);
    ASSERT_EQ(last.Wait(absl::Minutes(1)), absl::OkStatus()) << "round " << round;
  }
}

}  // namespace
}  // namespace telegrad
