// Runs over several devices of one process: CPUs, and a loopback device that takes graphs.
#include "engine/execution/partitioned_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "devices/null/null_device.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST_F(PartitionedTest, AGraphRunsOnTwoDevices) {
  AddCpus(2);
  const auto executable = Make(ThereAndBack(4));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, 4), Buffer(0, 4)};
  const auto point = executable->Submit(bound, {});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_TRUE(point->Wait().ok());
  EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{1, 4, 9, 16}));
  EXPECT_EQ(Values(0, bound[2]), (std::vector<float>{1, 4, 9, 16}));
  EXPECT_EQ(cache_.bytes_sent(), 2 * 16);
}

// Notes which kind of each device's queues the work of a run goes to.
class NotedQueues final : public RunQueues {
 public:
  absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work) override {
    kinds.emplace_back(&device, kind);
    return DirectQueues().Submit(device, kind, std::move(work));
  }
  std::vector<std::pair<const Device*, QueueKind>> kinds;
};

// Runs the same executable and releases its memory within each submission, as a device does that
// runs there, on the submitting thread, what others have submitted.
class InterleavedQueues final : public RunQueues {
 public:
  explicit InterleavedQueues(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {}
  absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work) override {
    auto point = DirectQueues().Submit(device, kind, std::move(work));
    meanwhile_();
    return point;
  }

 private:
  const std::function<void()> meanwhile_;
};

TEST_F(PartitionedTest, ARunMayBeSubmittedWithinTheSubmissionOfAnother) {
  AddCpus(2);
  const auto executable = Make(ThereAndBack(4));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, 4), Buffer(0, 4)};
  std::vector<std::vector<BufferView>> others;
  std::vector<TimelinePoint> ends;
  InterleavedQueues queues([&] {
    const auto n = static_cast<float>(others.size());
    others.push_back({Filled(0, {n, n + 1, 0, -n}), Buffer(1, 4), Buffer(0, 4)});
    const auto end = executable->Submit(others.back(), {});
    ASSERT_TRUE(end.ok()) << end.status();
    ends.push_back(*end);
    cache_.ReleaseMemory();
  });
  for (int i = 0; i < 3; ++i) {
    const auto end = executable->Submit(bound, {}, nullptr, nullptr, queues);
    ASSERT_TRUE(end.ok()) << end.status();
    ends.push_back(*end);
  }
  for (const TimelinePoint& end : ends) ASSERT_TRUE(end.Wait().ok());
  EXPECT_EQ(Values(0, bound[2]), (std::vector<float>{1, 4, 9, 16}));
  ASSERT_EQ(others.size(), 15u) << "three parts and two transfers of each run";
  for (size_t i = 0; i < others.size(); ++i) {
    const auto n = static_cast<float>(i);
    const std::vector<float> want{n * n, (n + 1) * (n + 1), 0, n * n};
    EXPECT_EQ(Values(1, others[i][1]), want) << i;
    EXPECT_EQ(Values(0, others[i][2]), want) << i;
  }
}

// However many threads submit runs of one executable at once, each has buffers of its own.
TEST_F(PartitionedTest, ThreadsSubmitRunsOfOneExecutable) {
  AddCpus(3);
  const auto executable = Make(ThereAndBack(64));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<float> in(64, static_cast<float>(t + 1));
      const std::vector<BufferView> bound{Filled(0, in), Buffer(1, 64), Buffer(0, 64)};
      for (int i = 0; i < 50; ++i) {
        const auto end = executable->Submit(bound, {});
        ASSERT_TRUE(end.ok() && end->Wait().ok()) << end.status();
        const std::vector<float> want(64, static_cast<float>((t + 1) * (t + 1)));
        ASSERT_EQ(Values(0, bound[2]), want);
        ASSERT_EQ(Values(1, bound[1]), want);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What is sent from a GPU and what is sent there are copied by queues of their own.
TEST_F(PartitionedTest, TransfersOutOfADeviceHaveAQueueOfTheirOwn) {
  AddCpus(1);
  Add(OpenNull({.target = HostTarget(1), .copy_queues = 2}));
  const auto executable = Make(ThereAndBack(4));
  ASSERT_NE(executable, nullptr);
  const std::vector<BufferView> bound{Buffer(0, 4), Buffer(1, 4), Buffer(0, 4)};
  NotedQueues queues;
  const auto point = executable->Submit(bound, {}, nullptr, nullptr, queues);
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_TRUE(point->Wait().ok());
  const auto count = [&](int device, QueueKind kind) {
    return std::ranges::count(queues.kinds,
                              std::pair<const Device*, QueueKind>(devices_[device], kind));
  };
  EXPECT_EQ(count(1, QueueKind::kCopy), 1);
  EXPECT_EQ(count(1, QueueKind::kCopyOut), 1);
  EXPECT_EQ(devices_[1]->queues()[1]->last().value, 1u);
  EXPECT_EQ(devices_[1]->queues()[2]->last().value, 1u);
  EXPECT_EQ(count(0, QueueKind::kCopy) + count(0, QueueKind::kCopyOut), 0);
}

TEST_F(PartitionedTest, TheSameGraphIsFoundAgain) {
  AddCpus(2);
  const FrozenGraph graph = ThereAndBack(4);
  const Digest hash = ContentHash(graph.root());
  EXPECT_EQ(cache_.Find(hash, devices_), nullptr);
  const auto made = Get(graph), again = Get(graph);
  ASSERT_TRUE(made.ok() && again.ok());
  EXPECT_FALSE(made->cached);
  EXPECT_TRUE(again->cached);
  EXPECT_EQ(made->executable, again->executable);
  EXPECT_EQ(cache_.Find(hash, devices_), made->executable);
  std::swap(devices_[0], devices_[1]);
  EXPECT_EQ(cache_.Find(hash, devices_), nullptr) << "what the numbers mean is part of the key";
}

TEST_F(PartitionedTest, ManyNumbersOfOneDeviceAreThatDevicesExecutable) {
  AddCpus(1);
  devices_.push_back(devices_[0]);
  const FrozenGraph graph = ThereAndBack(4);
  const auto made = Make(graph);
  EXPECT_EQ(parts_.Find(ContentHash(graph.root()), *devices_[0]), made);
  EXPECT_EQ(DeviceNumbers(graph.root()), (std::vector<int64_t>{0, 1}));
}

TEST_F(PartitionedTest, AllReducesSendWhatTheoryAsks) {
  AddCpus(4);
  constexpr int64_t kDevices = 4;
  for (const auto algorithm :
       {AllReduceAlgorithm::kNaive, AllReduceAlgorithm::kAllToAll, AllReduceAlgorithm::kRing}) {
    PartitionedCache cache(&parts_, {.executables = 16, .all_reduce = algorithm});
    for (const int64_t n : {1, 3, 8, 1001}) {
      SCOPED_TRACE(StrCat(n, " elements by algorithm ", static_cast<int>(algorithm)));
      std::vector<UOp> shards;
      for (int64_t d = 0; d < kDevices; ++d) shards.push_back(Param(d, n, d));
      const UOp sum =
          g_.Make(Op::kAllReduce, DType::kVoid, {g_.Make(Op::kMStack, DType::kVoid, shards)}, {0});
      std::vector<std::pair<UOp, UOp>> stores;
      std::vector<BufferView> bound;
      for (int64_t d = 0; d < kDevices; ++d) {
        stores.emplace_back(Param(kDevices + d, n, d),
                            g_.Make(Op::kMSelect, DType::kVoid, {sum}, {d}));
        std::vector<float> values(n);
        std::iota(values.begin(), values.end(), static_cast<float>(100 * d));
        bound.push_back(Filled(d, values));
      }
      for (int64_t d = 0; d < kDevices; ++d) bound.push_back(Buffer(d, n));
      const FrozenGraph graph = Stores(stores);
      Budget budget;
      const auto made = cache.Get(ContentHash(graph.root()), graph, devices_, &budget);
      ASSERT_TRUE(made.ok()) << made.status();
      for (int run = 0; run < 3; ++run) {
        const auto point = made->executable->Submit(bound, {});
        ASSERT_TRUE(point.ok()) << point.status();
        ASSERT_TRUE(point->Wait().ok());
      }
      for (int64_t d = 0; d < kDevices; ++d) {
        const std::vector<float> got = Values(d, bound[kDevices + d]);
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i], static_cast<float>(600 + 4 * i));
      }
      std::vector<int64_t> want;
      for (int64_t d = 0; d < kDevices; ++d) {
        const auto chunk = [&](int64_t c) { return ChunkOf(n, kDevices, c % kDevices).size; };
        const int64_t elements =
            algorithm == AllReduceAlgorithm::kNaive      ? (d == 0 ? kDevices - 1 : 1) * n
            : algorithm == AllReduceAlgorithm::kAllToAll ? n + (kDevices - 2) * chunk(d)
                                                         : 2 * n - chunk(d + 1) - chunk(d + 2);
        want.push_back(3 * 4 * elements);
      }
      const auto& partitioned = static_cast<const PartitionedExecutable&>(*made->executable);
      EXPECT_EQ(partitioned.BytesSent(), want);
    }
  }
}

TEST_F(PartitionedTest, NothingWaitsOnTheHost) {
  AddCpus(2);
  const auto executable = Make(ThereAndBack(4));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, 4), Buffer(0, 4)};
  // Every run waits for a gate that opens only after all were submitted.
  const auto gate = std::make_shared<Timeline>();
  const TimelinePoint open{gate, 1};
  std::vector<TimelinePoint> points;
  for (int run = 0; run < 20; ++run) {
    const auto point = executable->Submit(bound, {&open, 1});
    ASSERT_TRUE(point.ok()) << point.status();
    points.push_back(*point);
  }
  for (const TimelinePoint& p : points) EXPECT_EQ(p.timeline->value(), 0u);
  gate->Signal(1);
  for (const TimelinePoint& p : points) EXPECT_TRUE(p.Wait().ok());
  EXPECT_EQ(Values(0, bound[2]), (std::vector<float>{1, 4, 9, 16}));
}

TEST_F(PartitionedTest, RunsInARowSeeEachOthersStores) {
  AddCpus(2);
  // w (device 0) = w + 1 + what device 1 counts; device 1 counts by the new w.
  const UOp w = Param(0, 4, 0), c = Param(1, 4, 1);
  const UOp next = g_.Make(Op::kAdd, {w, Copy(c, 0)});
  const UOp store = g_.Make(Op::kStore, {w, next});
  const UOp after = g_.Make(Op::kAfter, {w, store});
  const UOp counted = g_.Make(Op::kStore, {c, g_.Make(Op::kAdd, {c, Copy(after, 1)})});
  const auto executable = Make(Freeze(g_.Make(Op::kSink, DType::kVoid, {store, counted})));
  const std::vector<BufferView> bound{Filled(0, {1, 1, 1, 1}), Filled(1, {1, 2, 3, 4})};
  std::vector<TimelinePoint> last;
  for (int run = 0; run < 6; ++run) {
    const auto point = executable->Submit(bound, last);
    ASSERT_TRUE(point.ok()) << point.status();
    last = {*point};
  }
  ASSERT_TRUE(last[0].Wait().ok());
  std::vector<float> want_w{1, 1, 1, 1}, want_c{1, 2, 3, 4};
  for (int run = 0; run < 6; ++run) {
    for (size_t i = 0; i < 4; ++i) want_c[i] += want_w[i] += want_c[i];
  }
  EXPECT_EQ(Values(0, bound[0]), want_w);
  EXPECT_EQ(Values(1, bound[1]), want_c);
}

TEST_F(PartitionedTest, AFailedWaitFailsTheRunAndNotTheNext) {
  AddCpus(2);
  const auto executable = Make(ThereAndBack(4));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, 4), Buffer(0, 4)};
  const auto bad = std::make_shared<Timeline>();
  bad->Signal(1, absl::DataLossError("the input is lost"));
  const TimelinePoint poisoned{bad, 1};
  for (int run = 0; run < 4; ++run) {  // as many as take every set of buffers
    const auto failed = executable->Submit(bound, {&poisoned, 1});
    ASSERT_TRUE(failed.ok()) << failed.status();
    EXPECT_EQ(failed->Wait(), absl::DataLossError("the input is lost"));
    EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{0, 0, 0, 0}));
  }
  const auto point = executable->Submit(bound, {});
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_TRUE(point->Wait().ok());
  EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{1, 4, 9, 16}));
}

TEST_F(PartitionedTest, BindingsAreChecked) {
  AddCpus(2);
  const auto executable = Make(ThereAndBack(4));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, 3), Buffer(0, 4)};
  EXPECT_THAT(executable->Submit(bound, {}).status().message(), HasSubstr("slot 1 has 12 bytes"));
}

TEST_F(PartitionedTest, ANumberThatMeansNoDeviceIsNamed) {
  AddCpus(2);
  const FrozenGraph graph = Stores({{Param(0, 4, 0), Copy(Param(1, 4, 5), 0)}});
  EXPECT_THAT(Get(graph).status().message(), HasSubstr("device 5, which is bound to none"));
}

TEST_F(PartitionedTest, MoreThanADeviceHasIsRefusedBeforeTheRun) {
  AddCpus(2);
  constexpr int64_t kMany = int64_t{20} << 20;  // of 4 bytes
  const UOp there = Copy(g_.Make(Op::kNeg, {Param(0, kMany, 0)}), 1);
  const FrozenGraph graph = Stores({{Param(1, kMany, 1), there}});
  EXPECT_EQ(Get(graph).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Get(graph).status().message(), HasSubstr("on CPU:"));
}

TEST_F(PartitionedTest, HalfOfAGraphRunsBeyondTheSeam) {
  AddCpus(1);
  AddLoopback();
  const auto executable = Make(ThereAndBack(5));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4, 5}), Buffer(1, 5), Buffer(0, 5)};
  for (int run = 0; run < 3; ++run) {
    const auto point = executable->Submit(bound, {});
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_TRUE(point->Wait().ok()) << point->Wait();
  }
  EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{1, 4, 9, 16, 25}));
  EXPECT_EQ(Values(0, bound[2]), (std::vector<float>{1, 4, 9, 16, 25}));
  EXPECT_EQ(beyond_->stats().misses, 1u) << "its part was compiled there";
  EXPECT_EQ(beyond_->stats().submissions, 3u);
}

TEST_F(PartitionedTest, AWholeGraphRunsBeyondTheSeam) {
  AddCpus(1);
  AddLoopback();
  const FrozenGraph graph = Stores({{Param(1, 4, 1), g_.Make(Op::kNeg, {Param(0, 4, 1)})}});
  const auto executable = Make(graph);
  const std::vector<BufferView> bound{Filled(1, {1, 2, 3, 4}), Buffer(1, 4)};
  const auto point = executable->Submit(bound, {});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_TRUE(point->Wait().ok());
  EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{-1, -2, -3, -4}));
}

TEST_F(PartitionedTest, APartThatDoesNotCompileBeyondTheSeamFailsHere) {
  AddCpus(1);
  Budget::Limits limits;
  limits.code = 10;
  AddLoopback(limits);
  const absl::Status status = Get(ThereAndBack(4)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("LOOPBACK:0: "));
}

TEST_F(PartitionedTest, FailuresCrossTheSeam) {
  AddCpus(1);
  AddLoopback();
  const auto executable = Make(ThereAndBack(4));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, 4), Buffer(0, 4)};
  const auto bad = std::make_shared<Timeline>();
  bad->Signal(1, absl::DataLossError("the input is lost"));
  const TimelinePoint poisoned{bad, 1};
  const auto failed = executable->Submit(bound, {&poisoned, 1});
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(failed->Wait(), absl::DataLossError("the input is lost"));
  EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{0, 0, 0, 0}));
  // A point of the loopback device's own, waited for on this side.
  const auto point = executable->Submit(bound, {&*failed, 1});
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->Wait(), absl::DataLossError("the input is lost"));
}

TEST_F(PartitionedTest, WhatIsNoGraphIsRefusedByTheDevice) {
  AddLoopback();
  EXPECT_THAT(devices_[0]->Load({"x", "no graph"}).status().message(),
              HasSubstr("LOOPBACK:0: the 8 bytes of a graph are not a serialized graph.proto"));
  Graph g;
  const std::string unverified = GraphBytes(g.Make(Op::kNeg, {g.Param(0, kFloat, Shape{4})}));
  EXPECT_EQ(devices_[0]->Load({"x", unverified}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto commands = devices_[0]->Encode({Command{}});
  EXPECT_THAT(commands.status().message(), HasSubstr("not loaded on a loopback device"));
}

TEST_F(PartitionedTest, LaunchesAreNotCopies) {
  AddCpus(1);
  AddLoopback();
  Device& device = *devices_[1];
  const FrozenGraph graph = Stores({{Param(0, 4, 0), g_.ConstFloat(kFloat, 1)}});
  const auto program = device.Load({"ones", GraphBytes(graph.root())});
  ASSERT_TRUE(program.ok()) << program.status();
  Command command;
  command.launch.program = *program;
  command.launch.arguments = {{0, 0}};
  const auto commands = device.Encode({command});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const BufferView out = Buffer(1, 4);
  EXPECT_THAT(device.queue(QueueKind::kCopy).Submit(*commands, {out}, {}).status().message(),
              HasSubstr("a launch was submitted to a queue that takes copies only"));
  const auto point = device.queue().Submit(*commands, {out}, {});
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_TRUE(point->Wait().ok());
  EXPECT_EQ(Values(1, out), (std::vector<float>{1, 1, 1, 1}));
}

}  // namespace
}  // namespace telegrad
