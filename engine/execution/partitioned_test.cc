// Runs over several devices of one process: CPUs, and a loopback device that takes graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "devices/null/null_device.h"
#include "engine/execution/execution_test.h"
#include "engine/execution/partitioned_cache.h"
#include "engine/execution/partitioned_executable.h"
#include "engine/execution/shared_caches.h"
#include "engine/wire/graph_bytes.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/loopback/graph_loader.h"
#include "tests/fakes/loopback/loopback_device.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr DType kFloat = DType::kFloat32;

class PartitionedTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Device> Cpu(int index) {
    return OpenHost({.index = index, .target = HostTarget(1)});
  }
  void Add(std::unique_ptr<Device> device) {
    devices_.push_back(device.get());
    owned_.push_back(std::move(device));
  }
  void AddCpus(int n) {
    for (int i = 0; i < n; ++i) Add(Cpu(i));
  }
  void AddLoopback(const Budget::Limits& limits = {}) {
    beyond_ = std::make_shared<ExecutableCache>(ExecutableCache::Limits{});
    LoopbackOptions options;
    options.inner = Cpu(7);
    options.load = MakeGraphLoader(beyond_, limits);
    Add(OpenLoopback(std::move(options)));
  }

  UOp Param(int64_t slot, int64_t n, int64_t device) {
    return g_.Param(slot, kFloat, Shape{n}, device);
  }
  UOp Copy(UOp x, int64_t device) { return g_.Make(Op::kCopy, DType::kVoid, {x}, {device}); }
  FrozenGraph Stores(const std::vector<std::pair<UOp, UOp>>& stores) {
    std::vector<UOp> roots;
    for (const auto& [to, value] : stores) roots.push_back(g_.Make(Op::kStore, {to, value}));
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, roots);
    EXPECT_TRUE(sink.valid()) << g_.status();
    return Freeze(sink);
  }
  // slot 1 (device 1) = sqrt of -(slot 0 (device 0)) ... twice over the border and back to slot 2.
  FrozenGraph ThereAndBack(int64_t n) {
    const UOp there = Copy(g_.Make(Op::kNeg, {Param(0, n, 0)}), 1);
    const UOp squared = g_.Make(Op::kMul, {there, there});
    return Stores({{Param(1, n, 1), squared}, {Param(2, n, 0), Copy(squared, 0)}});
  }

  absl::StatusOr<ExecutableCache::Result> Get(const FrozenGraph& graph,
                                              std::span<const VarValue> values = {}) {
    Budget budget;
    return cache_.Get(ContentHash(graph.root()), graph, devices_, &budget, values);
  }
  // Variable 0, from 0 to `most`.
  UOp Length(int64_t most) { return g_.Make(Op::kVar, DType::kVoid, {}, {0, 0, most, 1}); }
  // The first n of the rows of a value.
  UOp Rows(UOp x, UOp n) {
    std::vector<int64_t> pairs{0, -2};
    for (size_t i = 1; i < x.shape().size(); ++i) pairs.insert(pairs.end(), {0, x.shape()[i]});
    return g_.Make(Op::kShrink, {x, n}, pairs);
  }
  // A run with variable 0.
  void RunWith(const FrozenGraph& graph, int64_t n, const std::vector<BufferView>& bound) {
    const auto made = Get(graph, std::vector<VarValue>{{0, n}});
    ASSERT_TRUE(made.ok()) << n << ": " << made.status();
    const auto point = made->executable->Submit(bound, {});
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_EQ(point->Wait(), absl::OkStatus());
  }
  std::shared_ptr<const Executable> Make(const FrozenGraph& graph) {
    const auto made = Get(graph);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->executable : nullptr;
  }

  BufferView Buffer(int64_t device, int64_t n) {
    return {*devices_[device]->Alloc(4 * n), 0, 4 * n};
  }
  // By way of host memory of the first device where the device's cannot be addressed.
  void Move(const BufferView& to, const BufferView& from, Device& device) {
    const auto point = telegrad::Copy(device, to, from);
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_TRUE(point->Wait().ok());
  }
  BufferView Filled(int64_t device, const std::vector<float>& values) {
    const auto n = static_cast<int64_t>(values.size());
    BufferView host = Buffer(0, n);
    std::memcpy(host.memory->host(), values.data(), static_cast<size_t>(host.length));
    if (devices_[device]->host_visible() && device == 0) return host;
    BufferView out = Buffer(device, n);
    Move(out, host, *devices_[device]);
    return out;
  }
  std::vector<float> Values(int64_t device, const BufferView& view) {
    BufferView host = view;
    if (!devices_[device]->host_visible()) {
      EXPECT_EQ(view.memory->host(), nullptr);
      host = Buffer(0, view.length / 4);
      Move(host, view, *devices_[device]);
    }
    const auto* first = static_cast<const float*>(host.memory->host());
    return {first, first + view.length / 4};
  }

  Graph g_;
  std::shared_ptr<ExecutableCache> beyond_;
  std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> devices_;  // by the graph's numbers
  ExecutableCache parts_{ExecutableCache::Limits{}};
  PartitionedCache cache_{&parts_, {}};
};

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

// --- variables ---

std::vector<float> Counted(int64_t n, float first = 1) {
  std::vector<float> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// Of rows of which a variable says how many there are, a run sends those that it has: rounded up to
// an eighth of their bytes' power of two.
TEST_F(PartitionedTest, ARunSendsTheRowsThatItHas) {
  AddCpus(2);
  constexpr int64_t kRows = 100, kRow = 8;
  const UOp n = Length(kRows);
  const UOp x = g_.Param(0, kFloat, Shape{kRows, kRow}, 0);
  const UOp y = g_.Param(1, kFloat, Shape{kRows, kRow}, 1);
  const UOp z = g_.Param(2, kFloat, Shape{kRows, kRow}, 1);
  // As they lie in the slot, and computed.
  const FrozenGraph graph = Stores(
      {{Rows(y, n), Copy(Rows(x, n), 1)}, {Rows(z, n), Copy(g_.Make(Op::kNeg, {Rows(x, n)}), 1)}});
  int64_t sent = 0;
  for (const int64_t rows : {7, 100, 0, 1, 33, 99, 8}) {
    SCOPED_TRACE(rows);
    const std::vector<BufferView> bound{Filled(0, Counted(kRows * kRow)), Buffer(1, kRows * kRow),
                                        Buffer(1, kRows * kRow)};
    RunWith(graph, rows, bound);
    std::vector<float> want(kRows * kRow), negated(kRows * kRow);
    for (int64_t i = 0; i < rows * kRow; ++i) {
      want[i] = static_cast<float>(i + 1);
      negated[i] = -want[i];
    }
    EXPECT_EQ(Values(1, bound[1]), want);
    EXPECT_EQ(Values(1, bound[2]), negated);
    sent += 2 * BytesToSend(4 * rows * kRow, 4 * kRows * kRow);
    EXPECT_EQ(cache_.bytes_sent(), sent);
  }
  EXPECT_EQ(BytesToSend(0, 3200), 64);
  EXPECT_EQ(BytesToSend(0, 40), 40);
  EXPECT_EQ(BytesToSend(224, 3200), 224);
  EXPECT_EQ(BytesToSend(33 * 32, 3200), 1152);
  EXPECT_EQ(BytesToSend(99 * 32, 3200), 3200);
  EXPECT_EQ(parts_.stats().partitions, 1u);
  EXPECT_EQ(parts_.stats().partitions_for_values, 0u);
}

// Each chunk is a part of the fixed axis, of the rows that the run has.
TEST_F(PartitionedTest, AllReducesOfALengthOfTheRunSendWhatTheRunHas) {
  AddCpus(3);
  constexpr int64_t kDevices = 3, kRows = 40, kColumns = 7;
  for (const auto algorithm :
       {AllReduceAlgorithm::kNaive, AllReduceAlgorithm::kAllToAll, AllReduceAlgorithm::kRing}) {
    PartitionedCache cache(&parts_, {.executables = 16, .all_reduce = algorithm});
    const UOp n = Length(kRows);
    std::vector<UOp> shards;
    for (int64_t d = 0; d < kDevices; ++d) {
      shards.push_back(Rows(g_.Param(d, kFloat, Shape{kRows, kColumns}, d), n));
    }
    const UOp sum =
        g_.Make(Op::kAllReduce, DType::kVoid, {g_.Make(Op::kMStack, DType::kVoid, shards)}, {0});
    std::vector<std::pair<UOp, UOp>> stores;
    for (int64_t d = 0; d < kDevices; ++d) {
      stores.emplace_back(Rows(g_.Param(kDevices + d, kFloat, Shape{kRows, kColumns}, d), n),
                          g_.Make(Op::kMSelect, DType::kVoid, {sum}, {d}));
    }
    const FrozenGraph graph = Stores(stores);
    uint64_t compiled = 0, scheduled = 0;
    std::vector<int64_t> want_sent(kDevices, 0);
    for (const int64_t rows : {40, 3, 0, 17, 39, 1}) {
      SCOPED_TRACE(StrCat(rows, " rows by algorithm ", static_cast<int>(algorithm)));
      std::vector<BufferView> bound;
      for (int64_t d = 0; d < kDevices; ++d) {
        bound.push_back(Filled(d, Counted(kRows * kColumns, static_cast<float>(100 * d))));
      }
      for (int64_t d = 0; d < kDevices; ++d) bound.push_back(Buffer(d, kRows * kColumns));
      Budget budget;
      const auto made = cache.Get(ContentHash(graph.root()), graph, devices_, &budget,
                                  std::vector<VarValue>{{0, rows}});
      ASSERT_TRUE(made.ok()) << made.status();
      const auto point = made->executable->Submit(bound, {});
      ASSERT_TRUE(point.ok() && point->Wait().ok()) << point.status();
      for (int64_t d = 0; d < kDevices; ++d) {
        const std::vector<float> got = Values(d, bound[kDevices + d]);
        for (int64_t i = 0; i < kRows * kColumns; ++i) {
          ASSERT_EQ(got[i], i < rows * kColumns ? static_cast<float>(300 + 3 * i) : 0.0f) << i;
        }
        const auto sent = [&](int64_t columns) {
          return BytesToSend(4 * rows * columns, 4 * kRows * columns);
        };
        const auto chunk = [&](int64_t c) {
          return sent(ChunkOf(kColumns, kDevices, (c + kDevices) % kDevices).size);
        };
        if (algorithm == AllReduceAlgorithm::kNaive) {
          want_sent[d] += (d == 0 ? kDevices - 1 : 1) * sent(kColumns);
        } else if (algorithm == AllReduceAlgorithm::kAllToAll) {
          want_sent[d] += chunk(d + 1) + chunk(d + 2) + (kDevices - 1) * chunk(d);
        } else {  // all chunks but one, twice
          want_sent[d] += 2 * (chunk(0) + chunk(1) + chunk(2)) - chunk(d + 1) - chunk(d + 2);
        }
      }
      const auto& partitioned = static_cast<const PartitionedExecutable&>(*made->executable);
      EXPECT_EQ(partitioned.BytesSent(), want_sent);
      const ExecutableCache::Stats stats = parts_.stats();
      if (compiled > 0) {
        EXPECT_EQ(stats.kernels_compiled, compiled);
        EXPECT_EQ(stats.misses, scheduled);
      }
      compiled = stats.kernels_compiled;
      scheduled = stats.misses;
    }
  }
}

// A cache on device 1 gets a row of what device 0 computes, and device 0 the sum of all rows so
// far: runs with value after value are submitted before any has ended.
TEST_F(PartitionedTest, ACacheGrowsOverRunsThatDoNotWait) {
  AddCpus(2);
  constexpr int64_t kRows = 24, kRow = 4;
  const UOp at = Length(kRows - 1), rows = g_.Make(Op::kAdd, {at, g_.Index(1)});
  const UOp in = g_.Param(0, kFloat, Shape{1, kRow}, 0);
  const UOp memory = g_.Param(1, kFloat, Shape{kRows, kRow}, 1);
  const UOp total = g_.Param(2, kFloat, Shape{1, kRow}, 0);
  const UOp row = g_.Make(Op::kAdd, {in, total});
  const UOp target = g_.Make(Op::kShrink, {memory, at}, std::vector<int64_t>{-2, 1, 0, kRow});
  const UOp store = g_.Make(Op::kStore, {target, Copy(row, 1)});
  const UOp seen = Rows(g_.Make(Op::kAfter, {memory, store}), rows);
  const UOp sum = g_.Make(Op::kReduce, {seen}, std::vector<int64_t>{0, 0});
  const UOp back = g_.Make(Op::kStore, {total, Copy(sum, 0)});
  const FrozenGraph graph = Freeze(g_.Make(Op::kSink, DType::kVoid, {store, back}));
  const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(1, kRows * kRow),
                                      Buffer(0, kRow)};
  std::vector<TimelinePoint> last;
  const auto gate = std::make_shared<Timeline>();
  last.push_back({gate, 1});
  std::vector<float> want(kRows * kRow), totals(kRow);
  for (int64_t i = 0; i < kRows / 2; ++i) {
    const auto made = Get(graph, std::vector<VarValue>{{0, i}});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->cached, i > 0);
    const auto point = made->executable->Submit(bound, last);
    ASSERT_TRUE(point.ok()) << point.status();
    last = {*point};
    std::vector<float> next(kRow);
    for (int64_t k = 0; k < kRow; ++k) {
      want[i * kRow + k] = static_cast<float>(k + 1) + totals[k];
      for (int64_t r = 0; r <= i; ++r) next[k] += want[r * kRow + k];
    }
    totals = next;
  }
  gate->Signal(1);
  ASSERT_EQ(last[0].Wait(), absl::OkStatus());
  EXPECT_EQ(Values(1, bound[1]), want);
  EXPECT_EQ(Values(0, bound[2]), totals);
}

TEST_F(PartitionedTest, ValuesThatAreNotAllowedAreRefusedAsOnOneDevice) {
  AddCpus(2);
  const UOp n = Length(8);
  const FrozenGraph graph = Stores({{Rows(Param(1, 8, 1), n), Copy(Rows(Param(0, 8, 0), n), 1)}});
  const auto message = [&](std::vector<VarValue> values) {
    const absl::Status status = Get(graph, values).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  for (int i = 0; i < 2; ++i) {  // before there is a partition, and then
    EXPECT_EQ(message({}), "variable 0 has no value, expected one in [0, 8]");
    EXPECT_EQ(message({{0, 9}}), "variable 0 is 9, expected a multiple of 1 in [0, 8]");
    EXPECT_EQ(message({{0, 1}, {1, 1}}), "variable 1 is none of the graph's");
    EXPECT_EQ(message({{0, 1}, {0, 1}}), "variable 0 is given twice");
    EXPECT_EQ(cache_.Find(ContentHash(graph.root()), devices_, std::vector<VarValue>{{0, 9}}),
              nullptr);
    EXPECT_EQ(parts_.stats().partitions, static_cast<uint64_t>(i));
    RunWith(graph, 3, {Filled(0, Counted(8)), Buffer(1, 8)});
  }
}

TEST_F(PartitionedTest, APartGetsAFormForAValueThatIsFrequent) {
  AddCpus(2);
  const UOp n = Length(8);
  const FrozenGraph graph =
      Stores({{Rows(Param(1, 8, 1), n), g_.Make(Op::kNeg, {Copy(Rows(Param(0, 8, 0), n), 1)})}});
  const auto misses = [&] { return parts_.stats().misses; };
  std::vector<uint64_t> after;
  for (int run = 0; run < 4; ++run) {
    const std::vector<BufferView> bound{Filled(0, Counted(8)), Buffer(1, 8)};
    RunWith(graph, 2, bound);
    EXPECT_EQ(Values(1, bound[1]), (std::vector<float>{-1, -2, 0, 0, 0, 0, 0, 0}));
    after.push_back(misses());
  }
  EXPECT_EQ(after, (std::vector<uint64_t>{1, 1, 2, 2}));
  EXPECT_EQ(parts_.stats().partitions, 1u);
}

// What is kept does not grow with the values, and all of it is charged.
TEST_F(PartitionedTest, WhatAllValuesShareIsChargedOnce) {
  AddCpus(2);
  const auto account = std::make_shared<Account>("compiled", int64_t{1} << 30, "raise it");
  ExecutableCache parts(ExecutableCache::Limits{.specializations = 0},
                        std::make_shared<SharedCaches>(ExecutableCache::Limits{}),
                        {.device_memory = nullptr, .cache = account});
  const UOp n = Length(64);
  const FrozenGraph graph =
      Stores({{Rows(Param(1, 64, 1), n), g_.Make(Op::kNeg, {Copy(Rows(Param(0, 64, 0), n), 1)})}});
  {
    PartitionedCache cache(&parts, {});
    int64_t used = 0;
    for (int64_t value = 0; value <= 64; ++value) {
      Budget budget;
      const std::vector<VarValue> values{{0, value}};
      const auto made = cache.Get(ContentHash(graph.root()), graph, devices_, &budget, values);
      ASSERT_TRUE(made.ok()) << made.status();
      if (value == 0) used = account->used();
      EXPECT_EQ(account->used(), used) << value;
    }
    EXPECT_GT(used, 1000);
    cache.DropOldest();
    EXPECT_LT(account->used(), used);
    const std::vector<VarValue> values{{0, 1}};
    EXPECT_EQ(cache.Find(ContentHash(graph.root()), devices_, values), nullptr);
  }
}

// A value of a packed type with a size of the run: each set of values has a partition, and the
// report says why.
TEST_F(PartitionedTest, WhatHasNoPartitionForAllValuesHasOneForEach) {
  AddCpus(2);
  const UOp n = Length(8);
  const UOp codes = Rows(g_.Param(0, DType::kInt4, Shape{8}, 0), n);
  const UOp there = Copy(g_.Make(Op::kCast, kFloat, {codes}), 1);
  const FrozenGraph graph = Stores({{Rows(Param(1, 8, 1), n), there}});
  for (const int64_t value : {3, 5}) {
    BufferView in{*devices_[0]->Alloc(4), 0, 4};
    std::memcpy(in.memory->host(), "\x21\x43\x65\x07", 4);
    const std::vector<BufferView> bound{in, Buffer(1, 8)};
    RunWith(graph, value, bound);
    std::vector<float> want = Counted(8);
    std::fill(want.begin() + value, want.end(), 0);
    EXPECT_EQ(Values(1, bound[1]), want);
  }
  EXPECT_EQ(parts_.stats().partitions_for_values, 2u);
  const auto made = Get(graph, std::vector<VarValue>{{0, 3}});
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->cached);
  EXPECT_THAT(
      made->executable->kernels()[0].reasons,
      ::testing::Contains(HasSubstr("partitioned for each set of values of its variables: ")));
  EXPECT_THAT(made->executable->kernels()[0].reasons,
              ::testing::Contains(HasSubstr("packed type")));
}

// Where what is handed over would not fit for the greatest values, others still run.
TEST_F(PartitionedTest, BoundsThatDoNotFitLeaveAPartitionForEachSetOfValues) {
  AddCpus(2);
  constexpr int64_t kMany = int64_t{20} << 20;  // of 4 bytes, over the devices' limit
  const UOp n = Length(kMany);
  const UOp iota = g_.Make(Op::kCast, kFloat, {g_.Make(Op::kIota, DType::kInt64, {n}, {-1})});
  const UOp x =
      g_.Make(Op::kAdd, {iota, g_.Make(Op::kReshape, DType::kVoid, {Param(0, 1, 0)}, {})});
  const UOp sum = g_.Make(Op::kReduce, {Copy(x, 1)}, std::vector<int64_t>{0, 0});
  const FrozenGraph graph = Stores({{Param(1, 1, 1), sum}});
  for (const int64_t value : {4, 10}) {
    const std::vector<BufferView> bound{Filled(0, {1}), Buffer(1, 1)};
    RunWith(graph, value, bound);
    EXPECT_EQ(Values(1, bound[1])[0], static_cast<float>(value * (value + 1) / 2));
  }
  EXPECT_EQ(parts_.stats().partitions_for_values, 2u);
  const auto made = Get(graph, std::vector<VarValue>{{0, 4}});
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(made->executable->kernels()[0].reasons,
              ::testing::Contains(HasSubstr("over its limit of")));
}

// Nor where it would not fit beside the temporaries of a part: of 64 MiB the value takes 40 MB
// where the partition is for all, 28 MB where it is for this size, and the part needs as much
// again.
TEST_F(PartitionedTest, BoundsThatDoNotFitBesideTemporariesDoNotEither) {
  AddCpus(2);
  constexpr int64_t kMost = 10'000'000, kSize = 7'000'000;
  const UOp n = Length(kMost);
  const UOp one = g_.Make(Op::kReshape, {Param(0, 1, 0)}, Shape{1});
  const UOp x = g_.Make(Op::kExpand, {one, n}, Shape{-2});
  const UOp there = Copy(g_.Make(Op::kContiguous, {g_.Make(Op::kNeg, {x})}), 1);
  const UOp stored = g_.Make(Op::kContiguous, {g_.Make(Op::kNeg, {there})});
  const UOp sum = g_.Make(Op::kReduce, {stored}, std::vector<int64_t>{0, 0});
  const FrozenGraph graph = Stores({{Param(1, 1, 1), sum}});
  const std::vector<BufferView> bound{Filled(0, {1}), Buffer(1, 1)};
  RunWith(graph, kSize, bound);
  EXPECT_EQ(Values(1, bound[1])[0], static_cast<float>(kSize));
  EXPECT_EQ(parts_.stats().partitions_for_values, 1u);
  cache_.ReleaseMemory();
  parts_.ReleaseTemporaries();
  RunWith(graph, 1000, bound);
  EXPECT_EQ(Values(1, bound[1])[0], 1000);
  EXPECT_EQ(parts_.stats().partitions_for_values, 1u) << "this one fits";
}

// A loop runs as often as the values say, however large its bound is.
TEST_F(PartitionedTest, ALoopOfTheRunDoesNoMoreThanTheRunAsks) {
  AddCpus(2);
  const UOp carried =
      g_.Make(Op::kArg, kFloat, std::span<const UOp>{}, std::vector<int64_t>{1, 0, 4});
  const UOp there = Copy(carried, 1);
  const UOp body = g_.Make(Op::kTuple, DType::kVoid, {Copy(g_.Make(Op::kAdd, {there, there}), 0)});
  const UOp loop = g_.Make(Op::kLoop, DType::kVoid, {body, Length(9000), Param(0, 4, 0)});
  const FrozenGraph graph =
      Stores({{Param(1, 4, 0), g_.Make(Op::kGetTuple, DType::kVoid, {loop}, {0})}});
  int64_t sent = 0;
  for (const int64_t trips : {3, 0, 5}) {
    const std::vector<BufferView> bound{Filled(0, {1, 2, 3, 4}), Buffer(0, 4)};
    RunWith(graph, trips, bound);
    const auto by = static_cast<float>(1 << trips);
    EXPECT_EQ(Values(0, bound[1]), (std::vector<float>{by, 2 * by, 3 * by, 4 * by}));
    sent += trips * 2 * 16;
    EXPECT_EQ(cache_.bytes_sent(), sent);
  }
  EXPECT_EQ(parts_.stats().partitions_for_values, 3u);
  const auto made = Get(graph, std::vector<VarValue>{{0, 3}});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->executable->kernels()[0].reasons,
              ::testing::Contains(HasSubstr("iterations of a loop")));
}

// -x of a length of the run, there and to slot 1; at most 1 MB are handed over.
class LessMemory : public PartitionedTest {
 protected:
  static constexpr int64_t kMost = 250'000, kBytes = 4 * kMost;

  LessMemory() { AddCpus(2); }
  FrozenGraph Negated() {
    const UOp n = Length(kMost);
    return Stores(
        {{Rows(Param(1, kMost, 1), n), g_.Make(Op::kNeg, {Copy(Rows(Param(0, kMost, 0), n), 1)})}});
  }
  // What the run with these many elements reports as reasons of its first kernel.
  std::vector<std::string> Run(PartitionedCache& cache, const FrozenGraph& graph, int64_t n) {
    Budget budget;
    const std::vector<VarValue> values{{0, n}};
    const auto made = cache.Get(ContentHash(graph.root()), graph, devices_, &budget, values);
    EXPECT_TRUE(made.ok()) << n << ": " << made.status();
    if (!made.ok()) return {};
    EXPECT_NE(cache.Find(ContentHash(graph.root()), devices_, values), nullptr) << n;
    const auto point = made->executable->Submit(std::vector<BufferView>{in_, out_}, {});
    EXPECT_TRUE(point.ok()) << n << ": " << point.status();
    if (!point.ok()) return {};
    EXPECT_EQ(point->Wait(), absl::OkStatus());
    EXPECT_EQ(Values(1, out_)[n - 1], -static_cast<float>(n)) << n;
    return made->executable->kernels()[0].reasons;
  }
  static auto IsForValues(std::string_view why) {
    return ::testing::Contains(
        ::testing::AllOf(HasSubstr("partitioned for each set of values"), HasSubstr(why)));
  }

  BufferView in_ = {}, out_ = {};
};

// Where the account has no room for the bounds, runs of few rows have what they need.
TEST_F(LessMemory, OfTheAccountARunGetsWhatItsValuesNeed) {
  in_ = Filled(0, Counted(kMost));
  out_ = Buffer(1, kMost);
  const auto account = std::make_shared<Account>("device_memory", 2 * kBytes, "raise it");
  ExecutableCache parts(ExecutableCache::Limits{.specializations = 0},
                        std::make_shared<SharedCaches>(ExecutableCache::Limits{}),
                        {.device_memory = account, .cache = nullptr});
  PartitionedCache cache(&parts, {});
  const FrozenGraph graph = Negated();
  {
    const auto others = Reservation::Take(account, 2 * kBytes - 10'000);
    ASSERT_TRUE(others.ok());
    EXPECT_THAT(Run(cache, graph, 7), IsForValues("device_memory"));
    EXPECT_THAT(Run(cache, graph, 1000), IsForValues("device_memory"));
    EXPECT_EQ(parts.stats().partitions_for_values, 2u);
    cache.ReleaseMemory();
    EXPECT_LT(account->used(), 2 * kBytes - 10'000 + 1000) << "what did not fit is not kept";
  }
  // With room it is the one for all values.
  EXPECT_THAT(Run(cache, graph, 8), ::testing::Not(IsForValues("")));
  EXPECT_THAT(Run(cache, graph, 9), ::testing::Not(IsForValues("")));
  EXPECT_EQ(parts.stats().partitions_for_values, 2u);
}

// Likewise where the memory of the device itself is in use.
TEST_F(LessMemory, OfTheDeviceARunGetsWhatItsValuesNeed) {
  in_ = Filled(0, Counted(kMost));
  out_ = Buffer(1, kMost);
  const FrozenGraph graph = Negated();
  auto others = devices_[1]->Alloc(devices_[1]->memory_limit() - 2 * kBytes + 100'000);
  ASSERT_TRUE(others.ok()) << others.status();
  EXPECT_THAT(Run(cache_, graph, 7), IsForValues(""));
  EXPECT_EQ(parts_.stats().partitions_for_values, 1u);
  others->reset();
  EXPECT_THAT(Run(cache_, graph, 8), ::testing::Not(IsForValues("")));
  EXPECT_EQ(parts_.stats().partitions_for_values, 1u);
}

// And where a run may not have so much at a time.
TEST_F(LessMemory, OfTheLimitOfARunItGetsWhatItsValuesNeed) {
  in_ = Filled(0, Counted(kMost));
  out_ = Buffer(1, kMost);
  const FrozenGraph graph = Negated();
  PartitionedCache cache(&parts_, {.run_bytes = 2 * kBytes + 100'000});
  EXPECT_THAT(Run(cache, graph, 7), IsForValues("over its limit of 2100000"));
  Budget budget;
  const std::vector<VarValue> values{{0, 7}};
  const auto made = cache.Get(ContentHash(graph.root()), graph, devices_, &budget, values);
  ASSERT_TRUE(made.ok());
  EXPECT_LE(made->executable->cost().peak_bytes(), 2 * kBytes + 100'000);
  PartitionedCache enough(&parts_, {.run_bytes = 4 * kBytes});
  EXPECT_THAT(Run(enough, graph, 7), ::testing::Not(IsForValues("")));
}

// Two runs overlap where there is memory for it; where there is not, the second waits for the
// first.
TEST_F(LessMemory, RunsShareTheMemoryThatThereIs) {
  in_ = Filled(0, Counted(kMost));
  out_ = Buffer(1, kMost);
  const FrozenGraph graph = Negated();
  const auto others = devices_[1]->Alloc(devices_[1]->memory_limit() - 3 * kBytes + 100'000);
  ASSERT_TRUE(others.ok()) << others.status();
  const auto made = Get(graph, std::vector<VarValue>{{0, kMost}});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto start = std::make_shared<Timeline>();
  const BufferView second = Buffer(0, kMost);
  std::memset(second.memory->host(), 0, static_cast<size_t>(second.length));
  const std::vector<TimelinePoint> waits{{start, 1}};
  const auto first = made->executable->Submit(std::vector<BufferView>{in_, out_}, waits);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto last =
      made->executable->Submit(std::vector<BufferView>{second, out_}, std::vector{*first});
  ASSERT_TRUE(last.ok()) << last.status();
  start->Signal(1);
  EXPECT_EQ(first->Wait(), absl::OkStatus());
  EXPECT_EQ(last->Wait(), absl::OkStatus());
  EXPECT_EQ(Values(1, out_)[kMost - 1], 0);
  EXPECT_EQ(parts_.stats().partitions_for_values, 0u);
}

// A kernel for all values is larger than one for those of the run. Of growing limits there is one
// that only the latter is within, and then the run has it. A budget that is spent is spent.
TEST_F(LessMemory, WhatIsTooLargeForAllValuesIsCompiledForTheRuns) {
  in_ = Filled(0, Counted(kMost));
  out_ = Buffer(1, kMost);
  const FrozenGraph graph = Negated();
  const std::vector<VarValue> values{{0, 7}};
  int for_values = 0;
  bool for_all = false;
  for (int64_t limit = 1; !for_all && limit < 1000; ++limit) {
    ExecutableCache parts{ExecutableCache::Limits{}};
    PartitionedCache cache(&parts, {});
    Budget::Limits limits;
    limits.expression = limit;
    Budget budget(limits);
    const auto made = cache.Get(ContentHash(graph.root()), graph, devices_, &budget, values);
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted) << made.status();
      EXPECT_EQ(for_values, 0) << limit;
      continue;
    }
    for_all = parts.stats().partitions_for_values == 0;
    if (!for_all && ++for_values == 1) {
      EXPECT_THAT(made->executable->kernels()[0].reasons, IsForValues("nodes of one kernel"));
      const auto point = made->executable->Submit(std::vector<BufferView>{in_, out_}, {});
      ASSERT_TRUE(point.ok()) << point.status();
      ASSERT_EQ(point->Wait(), absl::OkStatus());
      EXPECT_EQ(Values(1, out_)[6], -7);
    }
  }
  EXPECT_GT(for_values, 0);
  EXPECT_TRUE(for_all);

  Budget::Limits limits;
  limits.nodes = 5;
  Budget budget(limits);
  EXPECT_EQ(cache_.Get(ContentHash(graph.root()), graph, devices_, &budget, values).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(parts_.stats().partitions_for_values, 0u);
}

// Sizes of which the sum does not fit into 64 bits.
TEST_F(PartitionedTest, MoreBytesThanCanBeCountedAreRefused) {
  AddCpus(2);
  for (const int64_t bytes : {INT64_MAX, INT64_MAX / 2 + 1}) {
    Partition partition;
    for (int i = 0; i < 3; ++i) partition.buffers.push_back({1, bytes});
    const auto plan = PartitionedPlan::Create(std::move(partition), {}, devices_, "",
                                              std::make_shared<RunCounters>(), /*account=*/nullptr);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << bytes;
    EXPECT_THAT(plan.status().message(), HasSubstr("than 64 bits count")) << bytes;
  }
  Partition partition;
  for (int i = 0; i < 2; ++i) {
    PartitionStep step;
    step.kind = PartitionStep::Kind::kTransfer;
    step.bytes = INT64_MAX / 2 + 1;
    partition.steps.push_back(std::move(step));
  }
  EXPECT_EQ(partition.BytesSent(1), std::vector<int64_t>{INT64_MAX});
}

TEST_F(PartitionedTest, APartWithVariablesTravelsOnce) {
  AddCpus(1);
  AddLoopback();
  const UOp n = Length(16);
  const FrozenGraph graph =
      Stores({{Rows(Param(1, 16, 0), n),
               Copy(g_.Make(Op::kNeg, {Copy(Rows(Param(0, 16, 0), n), 1)}), 0)}});
  for (const int64_t value : {16, 1, 0, 7, 15}) {
    const std::vector<BufferView> bound{Filled(0, Counted(16)), Buffer(0, 16)};
    RunWith(graph, value, bound);
    std::vector<float> want(16);
    for (int64_t i = 0; i < value; ++i) want[i] = -static_cast<float>(i + 1);
    EXPECT_EQ(Values(0, bound[1]), want) << value;
    EXPECT_EQ(beyond_->stats().misses, 1u) << value;
    EXPECT_EQ(parts_.stats().partitions, 1u);
  }
}

// --- a device that takes graphs ---

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
