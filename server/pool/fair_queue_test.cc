// A queue of a device that runs what it is told when the test says so, for as long as the test
// says: who gets how much of it, who waits for whom, and what is handed to it when.
#include "server/pool/fair_queue.h"

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/api/host_queue.h"
#include "engine/execution/prediction.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {
namespace {

constexpr int64_t kMs = 1'000'000;

// A slice: whose it is, and how long it will run.
struct FakeSlice : CommandBuffer {
  std::string of;
  int64_t ns = 0;
  absl::Status status;
};

class FakeQueue final : public Queue {
 public:
  struct Entry {
    std::shared_ptr<const FakeSlice> slice;
    std::vector<TimelinePoint> waits;
    uint64_t value = 0;
  };

  explicit FakeQueue(fakes::ManualClock* clock) : clock_(*clock) {}

  TimelinePoint last() const override { return {timeline_, submitted_}; }

  // Runs the first one that it has.
  const FakeSlice& RunOne() {
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    absl::Status status = entry.slice->status;
    for (const TimelinePoint& wait : entry.waits) {
      EXPECT_GE(wait.timeline->value(), wait.value) << "a wait that holds the device up";
      if (status.ok()) status = wait.timeline->StatusOf(wait.value);
    }
    clock_.Advance(entry.slice->ns);
    ran_.push_back(entry.slice);
    timeline_->Signal(entry.value, status);
    return *ran_.back();
  }
  void RunAll() {
    while (!queue_.empty()) RunOne();
  }
  size_t size() const { return queue_.size(); }
  std::function<void()> on_enqueue;  // before each
  const std::deque<Entry>& entries() const { return queue_; }

 private:
  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override {
    if (on_enqueue) on_enqueue();
    queue_.push_back({std::static_pointer_cast<const FakeSlice>(std::move(work.commands)),
                      {waits.begin(), waits.end()},
                      ++submitted_});
    return TimelinePoint{timeline_, submitted_};
  }

  fakes::ManualClock& clock_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  uint64_t submitted_ = 0;
  std::deque<Entry> queue_;
  std::vector<std::shared_ptr<const FakeSlice>> ran_;
};

std::shared_ptr<FakeSlice> MakeSlice(std::string of, int64_t ns) {
  auto slice = std::make_shared<FakeSlice>();
  slice->of = std::move(of);
  slice->ns = ns;
  return slice;
}

// A work of slices that are predicted to take `predicted` and take `ns`.
SlicedWork WorkOf(const std::string& of, int slices, int64_t predicted, int64_t ns) {
  auto all = std::make_shared<std::vector<RunSlice>>();
  for (int i = 0; i < slices; ++i) {
    all->push_back({MakeSlice(of, ns), static_cast<double>(predicted) * 1e-9});
  }
  SlicedWork work;
  work.slices = std::move(all);
  return work;
}

bool IsOver(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

class FairQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<FairQueue::Lane> NewLane(std::string name, int64_t weight = 1) {
    return queue_.NewLane(std::make_shared<Share>(std::move(name), weight));
  }
  // What was run of each tenant until the clock has moved by `ns`; nobody ever runs out of work.
  struct Tenant {
    std::string name;
    int64_t weight = 1;
    int slices = 1;
    int64_t predicted = 0, ns = 0;
  };
  std::map<std::string, int64_t> RunFor(const std::vector<Tenant>& tenants, int64_t ns) {
    std::map<std::string, int64_t> got;
    std::vector<std::shared_ptr<FairQueue::Lane>> lanes;
    std::vector<std::deque<TimelinePoint>> points(tenants.size());
    for (const Tenant& t : tenants) lanes.push_back(NewLane(t.name, t.weight));
    const int64_t end = clock_.Ns() + ns;
    while (clock_.Ns() < end) {
      for (size_t i = 0; i < tenants.size(); ++i) {
        const Tenant& t = tenants[i];
        while (!points[i].empty() && IsOver(points[i].front())) points[i].pop_front();
        while (points[i].size() < 40) {
          points[i].push_back(queue_.Submit(lanes[i], WorkOf(t.name, t.slices, t.predicted, t.ns)));
        }
      }
      const FakeSlice& slice = device_.RunOne();
      got[slice.of] += slice.ns;
    }
    device_.RunAll();
    return got;
  }

  fakes::ManualClock clock_;
  FakeQueue device_{&clock_};
  FairQueue queue_{&device_, &clock_};
};

TEST_F(FairQueueTest, DeviceTimeIsAsTheWeights) {
  constexpr int64_t kTotal = 10'000 * kMs;
  const auto check = [&](const std::vector<Tenant>& tenants) {
    int64_t sum = 0;
    for (const Tenant& t : tenants) sum += t.weight;
    const auto got = RunFor(tenants, kTotal);
    for (const Tenant& t : tenants) {
      const double fair = static_cast<double>(t.weight) / static_cast<double>(sum);
      EXPECT_NEAR(static_cast<double>(got.at(t.name)) / kTotal / fair, 1, 0.03) << t.name;
    }
  };
  // Kernels of 0.1 ms; of 3 s, in slices of 5 ms; one of each; predictions that are wrong.
  check({{"a", 1, 1, kMs / 10, kMs / 10}, {"b", 3, 1, kMs / 10, kMs / 10}});
  check({{"a", 1, 600, 5 * kMs, 5 * kMs}, {"b", 3, 600, 5 * kMs, 5 * kMs}});
  check({{"a", 1, 600, 5 * kMs, 5 * kMs}, {"b", 3, 1, kMs / 10, kMs / 10}});
  check({{"a", 1, 600, 5 * kMs, kMs}, {"b", 3, 600, kMs, 5 * kMs}});
  std::vector<Tenant> ten;
  for (int i = 0; i < 10; ++i) {
    ten.push_back({"t" + std::to_string(i), 1 + i % 3, i % 2 ? 600 : 1, i % 2 ? 5 * kMs : kMs / 10,
                   i % 2 ? 5 * kMs : kMs / 10});
  }
  check(ten);
}

// Clients that send the next run when they have the answer to one, some time after its end: each
// session runs dry all the time, and a tenant of many sessions never does.
TEST_F(FairQueueTest, SharesAreAsTheWeightsWhereSessionsRunDry) {
  struct Client {
    std::string name;
    std::shared_ptr<FairQueue::Lane> lane;
    int64_t predicted = 0, ns = 0;
    TimelinePoint point = {};
    int64_t answered = 0;  // when; 0: it is not over
  };
  constexpr int64_t kRun = kMs / 10, kAnswer = 2 * kRun, kTotal = 5'000 * kMs;
  constexpr int kSessions = 64;
  // Right predictions, and ones that are wrong in both directions.
  for (const auto& [of_a, of_b] :
       {std::pair(kRun, kRun), {kRun / 10, kRun * 10}, {kRun * 10, kRun / 10}}) {
    const auto a = std::make_shared<Share>("a", 1), b = std::make_shared<Share>("b", 3);
    std::deque<Client> clients;
    for (int i = 0; i < kSessions; ++i) {
      clients.push_back({"a", queue_.NewLane(a), of_a, kRun});
      clients.push_back({"b", queue_.NewLane(b), of_b, kRun});
    }
    std::map<std::string, int64_t> got;
    for (const int64_t end = clock_.Ns() + kTotal; clock_.Ns() < end;) {
      for (Client& client : clients) {
        if (!IsOver(client.point)) continue;
        if (client.answered == 0) client.answered = clock_.Ns() + kAnswer;
        if (client.point.timeline != nullptr && clock_.Ns() < client.answered) continue;
        client.answered = 0;
        client.point =
            queue_.Submit(client.lane, WorkOf(client.name, 1, client.predicted, client.ns));
      }
      ASSERT_GT(device_.size(), 0u);
      const FakeSlice& slice = device_.RunOne();
      got[slice.of] += slice.ns;
    }
    device_.RunAll();
    EXPECT_NEAR(static_cast<double>(got["a"]) / kTotal / 0.25, 1, 0.03) << of_a;
    EXPECT_NEAR(static_cast<double>(got["b"]) / kTotal / 0.75, 1, 0.03) << of_b;
  }
}

TEST_F(FairQueueTest, ALightTenantWaitsForTwoSlicesAtMost) {
  std::vector<std::shared_ptr<FairQueue::Lane>> heavy;
  for (int i = 0; i < 10; ++i) {
    heavy.push_back(NewLane("heavy", 9));
    for (int k = 0; k < 8; ++k) queue_.Submit(heavy.back(), WorkOf("heavy", 600, 5 * kMs, 5 * kMs));
  }
  for (int i = 0; i < 12; ++i) device_.RunOne();  // each of those who came first has had a turn
  const auto light = NewLane("light");
  for (int round = 0; round < 100; ++round) {
    device_.RunOne();
    const TimelinePoint point = queue_.Submit(light, WorkOf("light", 1, 1000, 1000));
    EXPECT_LE(device_.size(), 3u) << "so deep is the queue ahead of the device";
    int strangers = 0;
    while (device_.RunOne().of != "light") ++strangers;
    EXPECT_LE(strangers, 2) << round;
    EXPECT_TRUE(IsOver(point));
  }
  device_.RunAll();
}

// As soon as a stranger has a session, and until it has none: then the device has the next one
// ready behind that which runs.
TEST_F(FairQueueTest, AStrangerWaitsForOneSegment) {
  const auto share = std::make_shared<Share>("heavy", 1);
  const auto heavy = queue_.NewLane(share), more = queue_.NewLane(share);
  for (const auto& lane : {heavy, more}) queue_.Submit(lane, WorkOf("heavy", 60, 5 * kMs, 5 * kMs));
  EXPECT_EQ(device_.size(), 2u) << "two sessions of one tenant are no strangers";
  auto light = NewLane("light");
  for (int round = 0; round < 10; ++round) {
    device_.RunOne();
    device_.RunOne();
    EXPECT_EQ(device_.size(), 1u);
    queue_.Submit(light, WorkOf("light", 1, 1000, 1000));
    EXPECT_EQ(device_.RunOne().of, "heavy");
    EXPECT_EQ(device_.RunOne().of, "light") << round;
  }
  light.reset();
  device_.RunOne();
  EXPECT_EQ(device_.size(), 2u);
  light = NewLane("light");
  device_.RunAll();
  queue_.Submit(heavy, WorkOf("heavy", 60, 2 * kMs, 2 * kMs));
  EXPECT_EQ(device_.size(), 2u) << "together no longer than a segment";
  device_.RunAll();
}

// Slices that could not be cut: the device has one of them, and no tenant's share changes.
TEST_F(FairQueueTest, ALightTenantWaitsForOneLongSlice) {
  for (const char* name : {"heavy", "other"}) {
    const auto lane = NewLane(name);
    for (int k = 0; k < 4; ++k) queue_.Submit(lane, WorkOf(name, 60, 50 * kMs, 50 * kMs));
  }
  const auto light = NewLane("light");
  for (int round = 0; round < 100; ++round) {
    device_.RunOne();
    EXPECT_EQ(device_.size(), 1u);
    const TimelinePoint point = queue_.Submit(light, WorkOf("light", 1, 1000, 1000));
    EXPECT_NE(device_.RunOne().of, "light");
    EXPECT_EQ(device_.RunOne().of, "light") << round;
    EXPECT_TRUE(IsOver(point));
  }
  device_.RunAll();
  const auto got = RunFor({{"a", 1, 60, 50 * kMs, 50 * kMs},
                           {"b", 3, 60, 50 * kMs, 50 * kMs},
                           {"c", 4, 1, kMs / 10, kMs / 10}},
                          100'000 * kMs);
  EXPECT_NEAR(static_cast<double>(got.at("a")), 12'500.0 * kMs, 375.0 * kMs);
  EXPECT_NEAR(static_cast<double>(got.at("b")), 37'500.0 * kMs, 1125.0 * kMs);
  EXPECT_NEAR(static_cast<double>(got.at("c")), 50'000.0 * kMs, 1500.0 * kMs);
}

// What is predicted is what happens: the clock of the device is read when the work has ended.
TEST_F(FairQueueTest, PredictsTheEndOfAWork) {
  const auto mine = std::make_shared<Share>("mine", 1), other = std::make_shared<Share>("other", 3);
  const auto my_lane = queue_.NewLane(mine), urgent_lane = queue_.NewLane(mine);
  const auto other_lane = queue_.NewLane(other);
  EXPECT_EQ(queue_.backlog_ns(), 0);
  EXPECT_EQ(queue_.PredictEnd(*mine, {}, kMs), kMs) << "an idle device";

  for (int i = 0; i < 4; ++i) queue_.Submit(my_lane, WorkOf("mine", 10, kMs, kMs));
  for (int i = 0; i < 100; ++i) queue_.Submit(other_lane, WorkOf("other", 10, kMs, kMs));
  EXPECT_EQ(queue_.backlog_ns(), 1040 * kMs);
  // Behind 40 ms of its own tenant; meanwhile the other is served three times as long.
  EXPECT_EQ(queue_.PredictEnd(*mine, {}, 10 * kMs), 50 * kMs * 4);
  // Before all of these; and where the other has less than its share, no more than that counts.
  EXPECT_EQ(queue_.PredictEnd(*mine, {.priority = 1}, 10 * kMs), 10 * kMs * 4);
  EXPECT_EQ(queue_.PredictEnd(*mine, {.deadline_ns = 5}, 10 * kMs), 10 * kMs * 4);
  EXPECT_EQ(queue_.PredictEnd(*other, {.priority = 1}, 3000 * kMs), 3040 * kMs);

  const double predicted = queue_.PredictEnd(*mine, {.priority = 1}, 60 * kMs);
  const int64_t begin = clock_.Ns();
  const TimelinePoint point =
      queue_.Submit(urgent_lane, WorkOf("urgent", 60, kMs, kMs), {.priority = 1});
  while (!IsOver(point)) device_.RunOne();
  EXPECT_NEAR(static_cast<double>(clock_.Ns() - begin) / predicted, 1, 0.1);
  device_.RunAll();
  EXPECT_EQ(queue_.backlog_ns(), 0) << "whatever was predicted wrongly is forgotten";
}

TEST_F(FairQueueTest, NothingOfACancelledWorkIsAhead) {
  const auto lane = NewLane("a");
  const auto cancellation = std::make_shared<Cancellation>();
  SlicedWork work = WorkOf("a", 10, kMs, kMs);
  work.cancellation = cancellation;
  queue_.Submit(lane, std::move(work));
  EXPECT_EQ(queue_.backlog_ns(), 10 * kMs);
  cancellation->Cancel();
  device_.RunAll();
  EXPECT_EQ(queue_.backlog_ns(), 0);
}

TEST_F(FairQueueTest, IdleCapacityGoesToWhoeverWantsIt) {
  const auto idle = NewLane("idle", 1000), busy = NewLane("busy", 1);
  std::vector<TimelinePoint> points;
  for (int i = 0; i < 50; ++i) points.push_back(queue_.Submit(busy, WorkOf("busy", 4, kMs, kMs)));
  const int64_t begin = clock_.Ns();
  for (int i = 0; i < 200; ++i) {
    ASSERT_GT(device_.size(), 0u) << "the device is never left without work";
    device_.RunOne();
  }
  EXPECT_EQ(clock_.Ns() - begin, 200 * kMs);
  EXPECT_TRUE(IsOver(points.back()));
}

TEST_F(FairQueueTest, ManyShortSlicesMayBeAhead) {
  const auto lane = NewLane("a");
  for (int i = 0; i < 100; ++i) queue_.Submit(lane, WorkOf("a", 1, 10'000, 10'000));
  EXPECT_EQ(device_.size(), 16u);
  device_.RunAll();
  for (int i = 0; i < 100; ++i) queue_.Submit(lane, WorkOf("a", 1, 2 * kMs, 2 * kMs));
  EXPECT_EQ(device_.size(), 2u);
  device_.RunAll();
}

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

// What runs commands that are functions.
class FunctionRunner final : public QueueRunner {
 public:
  struct Commands : CommandBuffer {
    std::function<absl::Status()> run;
  };
  absl::Status Check(const CommandBuffer*, std::span<const BufferView>) const override {
    return absl::OkStatus();
  }
  bool IsQuick(const CommandBuffer&) const override { return true; }
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
