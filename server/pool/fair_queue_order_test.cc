// What of a tenant runs when: what waits, what fails or is cancelled, and whose time is counted.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/fair_queue_fixture.h"

namespace telegrad {
namespace {

TEST_F(FairQueueTest, WhatWaitsHoldsUpNobodyElse) {
  const auto waiting = NewLane("a"), other_of_tenant = NewLane("a"), stranger = NewLane("b");
  const TimelinePoint open{std::make_shared<Timeline>(), 1};
  SlicedWork blocked = WorkOf("waits", 1, kMs, kMs);
  blocked.waits = {{}, open};
  const TimelinePoint first = queue_.Submit(waiting, std::move(blocked));
  const TimelinePoint behind = queue_.Submit(waiting, WorkOf("behind", 1, kMs, kMs));
  queue_.Submit(other_of_tenant, WorkOf("free", 1, kMs, kMs));
  queue_.Submit(stranger, WorkOf("free", 1, kMs, kMs));
  EXPECT_EQ(device_.RunOne().of, "free");
  EXPECT_EQ(device_.RunOne().of, "free");
  EXPECT_EQ(device_.size(), 0u) << "a session's own works stay in order";
  open.timeline->Signal(1);
  EXPECT_EQ(device_.RunOne().of, "waits");
  EXPECT_TRUE(IsOver(first));
  EXPECT_EQ(device_.RunOne().of, "behind");
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
}

TEST_F(FairQueueTest, AChainKeepsTheDeviceBusyAndPassesOnAFailure) {
  const auto lane = NewLane("a");
  SlicedWork first = WorkOf("first", 2, 5 * kMs, 5 * kMs);
  const auto bad = std::make_shared<FakeSlice>();
  bad->status = absl::DataLossError("lost");
  auto slices = std::make_shared<std::vector<RunSlice>>(
      std::vector<RunSlice>{{bad, 5e-3}, {MakeSlice("never", 0), 5e-3}});
  first.slices = slices;
  const TimelinePoint a = queue_.Submit(lane, std::move(first));
  SlicedWork second = WorkOf("second", 1, 5 * kMs, 5 * kMs);
  second.waits = {a};
  const TimelinePoint b = queue_.Submit(lane, std::move(second));
  const TimelinePoint c = queue_.Submit(lane, WorkOf("third", 1, 5 * kMs, 5 * kMs));
  device_.RunAll();
  EXPECT_EQ(a.Wait().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(b.Wait().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(c.Wait(), absl::OkStatus());

  // Behind a work that the device has in full, there is nothing to wait for here.
  const TimelinePoint d = queue_.Submit(lane, WorkOf("d", 1, 5 * kMs, 5 * kMs));
  SlicedWork e = WorkOf("e", 1, 5 * kMs, 5 * kMs);
  e.waits = {d};
  queue_.Submit(lane, std::move(e));
  EXPECT_EQ(device_.size(), 2u);
  device_.RunAll();
}

TEST_F(FairQueueTest, FailuresOfOneAreNobodyElsesBusiness) {
  const auto mine = NewLane("mine"), theirs = NewLane("theirs");
  std::vector<TimelinePoint> good;
  for (int i = 0; i < 12'000; ++i) {
    good.push_back(queue_.Submit(mine, WorkOf("good", 1, 1000, 1000)));
    SlicedWork bad = WorkOf("bad", 1, 1000, 1000);
    auto slice = MakeSlice("bad", 1000);
    slice->status = absl::InternalError(std::to_string(i));
    bad.slices = std::make_shared<std::vector<RunSlice>>(std::vector<RunSlice>{{slice, 1e-6}});
    const TimelinePoint failed = queue_.Submit(theirs, std::move(bad));
    device_.RunAll();
    ASSERT_EQ(failed.Wait(), slice->status);
  }
  for (const TimelinePoint& point : good) {
    ASSERT_EQ(point.timeline->StatusOf(point.value), absl::OkStatus());
  }
}

TEST_F(FairQueueTest, PriorityThenDeadlineThenAge) {
  const auto share = std::make_shared<Share>("a", 1);
  std::vector<std::shared_ptr<FairQueue::Lane>> lanes;
  const auto submit = [&](const std::string& name, int slices, WorkTerms terms) {
    lanes.push_back(queue_.NewLane(share));
    return queue_.Submit(lanes.back(), WorkOf(name, slices, 5 * kMs, 5 * kMs), terms);
  };
  submit("begun", 4, {});  // two of its slices are with the device
  submit("old", 1, {});
  submit("later", 1, {.deadline_ns = 2000});
  submit("sooner", 1, {.deadline_ns = 1000});
  submit("low", 1, {.priority = -1, .deadline_ns = 1});
  submit("high", 2, {.priority = 1});
  std::vector<std::string> order;
  while (device_.size() > 0) order.push_back(device_.RunOne().of);
  EXPECT_EQ(order, (std::vector<std::string>{"begun", "begun", "high", "high", "begun", "begun",
                                             "sooner", "later", "old", "low"}));
}

// Behind the slice that the device has when it asks, and no other, however often it comes. Each run
// takes longer than predicted, which is a debt.
TEST_F(FairQueueTest, WhoReturnsWithALittleDebtWaitsForOneSlice) {
  const auto heavy = NewLane("heavy"), light = NewLane("light");
  queue_.Submit(heavy, WorkOf("heavy", 100, 4.9 * kMs, 4.9 * kMs));
  for (int run = 0; run < 20; ++run) {
    const TimelinePoint point = queue_.Submit(light, WorkOf("light", 1, 1000, 20'000));
    int others = 0;
    while (!IsOver(point)) others += device_.RunOne().of == "heavy" ? 1 : 0;
    EXPECT_LE(others, 1) << "in run " << run;
  }
  device_.RunAll();
}

// The device is as fast as the thread that submits; it would hand out until nothing is left.
TEST_F(FairQueueTest, ASubmitterHandsOutSoMuchForOthers) {
  const std::thread::id submitter = std::this_thread::get_id();
  device_.on_enqueue = [&] {
    if (std::this_thread::get_id() != submitter || device_.size() == 0) return;
    std::thread([&] { device_.RunOne(); }).join();
  };
  const TimelinePoint point = queue_.Submit(NewLane("a"), WorkOf("a", 1000, 5 * kMs, 5 * kMs));
  EXPECT_LT(clock_.Ns(), 1'000'000'000 + 100 * 5 * kMs) << "of its 1000 slices";
  EXPECT_GT(device_.size(), 0u);
  device_.on_enqueue = nullptr;
  device_.RunAll();
  EXPECT_TRUE(IsOver(point)) << "the device went on";
}

TEST_F(FairQueueTest, TimeIsOfWhatRanAlone) {
  const auto a = NewLane("a"), b = NewLane("b");
  const auto ta = std::make_shared<DeviceTime>(), tb = std::make_shared<DeviceTime>();
  queue_.Submit(a, WorkOf("a", 5, 5 * kMs, 5 * kMs), {.taken = ta});
  queue_.Submit(b, WorkOf("b", 1, 6000, 6000), {.taken = tb});
  clock_.Advance(0);
  device_.RunAll();
  EXPECT_EQ(ta->ns, 25 * kMs);
  EXPECT_EQ(tb->ns, 6000);
}

TEST_F(FairQueueTest, TheTimeOfALongWorkIsCountedWhileItRuns) {
  const auto taken = std::make_shared<DeviceTime>();
  int64_t counted = 0;
  taken->ended_slice = [&](int64_t ns) { counted += ns; };
  queue_.Submit(NewLane("a"), WorkOf("a", 5, 5 * kMs, 5 * kMs), {.taken = taken});
  clock_.Advance(0);
  device_.RunOne();
  EXPECT_EQ(counted, 5 * kMs);
  device_.RunAll();
  EXPECT_EQ(counted, 25 * kMs);
}

TEST_F(FairQueueTest, ACancelledWorkTakesNoMoreOfTheDevice) {
  const auto a = NewLane("a");
  const auto cancellation = std::make_shared<Cancellation>();
  SlicedWork work = WorkOf("a", 100, 5 * kMs, 5 * kMs);
  work.cancellation = cancellation;
  const TimelinePoint first = queue_.Submit(a, std::move(work));
  SlicedWork unbegun = WorkOf("b", 100, 5 * kMs, 5 * kMs);
  unbegun.cancellation = cancellation;
  const TimelinePoint second = queue_.Submit(a, std::move(unbegun));
  const TimelinePoint third = queue_.Submit(a, WorkOf("c", 1, kMs, kMs));
  device_.RunOne();
  cancellation->Cancel();
  device_.RunOne();
  device_.RunOne();  // what the device has; a driver looks at the cancellation itself
  EXPECT_EQ(first.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(device_.RunOne().of, "c");
  EXPECT_EQ(third.Wait(), absl::OkStatus());
}

TEST_F(FairQueueTest, DrainedIsReachedWhenAllBeforeItHasEnded) {
  EXPECT_TRUE(IsOver(queue_.Drained()));
  const auto a = NewLane("a"), b = NewLane("b");
  queue_.Submit(a, WorkOf("a", 1, 5 * kMs, 5 * kMs));
  queue_.Submit(b, WorkOf("b", 1, 5 * kMs, 5 * kMs));
  const TimelinePoint drained = queue_.Drained();
  const TimelinePoint later = queue_.Submit(a, WorkOf("later", 1, 5 * kMs, 5 * kMs));
  device_.RunOne();
  EXPECT_FALSE(IsOver(drained));
  device_.RunOne();
  EXPECT_TRUE(IsOver(drained));
  EXPECT_FALSE(IsOver(later));
  device_.RunAll();
}

TEST_F(FairQueueTest, ATenantCannotEscapeItsDebtWithANewSession) {
  const auto share = std::make_shared<Share>("a", 1);
  const auto other = NewLane("b");
  for (int i = 0; i < 100; ++i) queue_.Submit(other, WorkOf("b", 1, 5 * kMs, 5 * kMs));
  int64_t mine = 0, theirs = 0;
  std::shared_ptr<FairQueue::Lane> lane;
  TimelinePoint point;
  for (int i = 0; i < 100; ++i) {
    if (IsOver(point)) {
      lane = queue_.NewLane(share);  // the one before goes
      point = queue_.Submit(lane, WorkOf("a", 1, 5 * kMs, 5 * kMs));
    }
    (device_.RunOne().of == "a" ? mine : theirs) += 1;
  }
  EXPECT_LE(mine, theirs + 1);
  device_.RunAll();
}

}  // namespace
}  // namespace telegrad
