// Who gets how much of a device, and who waits for whom.
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "engine/execution/prediction.h"
#include "tests/server/fair_queue_fixture.h"

namespace telegrad {
namespace {

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

// A process that has to be asked first, and does not answer, holds up its own tenant alone.
TEST_F(FairQueueTest, WhoIsNotPreparedHoldsUpNobody) {
  const auto ready = std::make_shared<Timeline>();
  int asked = 0;
  device_.on_prepare = [&](const FakeSlice& slice) -> TimelinePoint {
    if (slice.of != "a" || ready->value() > 0) return {};
    ++asked;
    return {ready, 1};
  };
  const auto a = NewLane("a"), b = NewLane("b");
  const TimelinePoint first = queue_.Submit(a, WorkOf("a", 3, kMs, kMs)),
                      behind = queue_.Submit(a, WorkOf("a", 1, kMs, kMs));
  for (int i = 0; i < 10; ++i) {
    const TimelinePoint others = queue_.Submit(b, WorkOf("b", 2, kMs, kMs));
    device_.RunAll();
    EXPECT_TRUE(IsOver(others));
  }
  EXPECT_FALSE(IsOver(first));
  EXPECT_EQ(asked, 1);
  ready->Signal(1);
  device_.RunAll();
  EXPECT_EQ(first.Wait(), absl::OkStatus());
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
}

TEST_F(FairQueueTest, WhoCannotBePreparedFails) {
  const auto ready = std::make_shared<Timeline>();
  bool needs = true;
  device_.on_prepare = [&](const FakeSlice&) {
    return std::exchange(needs, false) ? TimelinePoint{ready, 1} : TimelinePoint{};
  };
  const auto lane = NewLane("a");
  const TimelinePoint first = queue_.Submit(lane, WorkOf("a", 2, kMs, kMs)),
                      behind = queue_.Submit(lane, WorkOf("a", 1, kMs, kMs));
  EXPECT_EQ(device_.size(), 0u);
  const absl::Status lost = absl::UnavailableError("its process has ended");
  ready->Signal(1, lost);
  EXPECT_EQ(first.Wait(), lost);
  device_.RunAll();
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
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

}  // namespace
}  // namespace telegrad
