// Graphs with variables over several devices: one partition for all values, what a run sends, and
// what has a partition for each set of values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/execution/partitioned_test.h"
#include "engine/execution/shared_caches.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

using PartitionedVariables = PartitionedTest;

// Of rows of which a variable says how many there are, a run sends those that it has: rounded up to
// an eighth of their bytes' power of two.
TEST_F(PartitionedVariables, ARunSendsTheRowsThatItHas) {
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
TEST_F(PartitionedVariables, AllReducesOfALengthOfTheRunSendWhatTheRunHas) {
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
TEST_F(PartitionedVariables, ACacheGrowsOverRunsThatDoNotWait) {
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

TEST_F(PartitionedVariables, ValuesThatAreNotAllowedAreRefusedAsOnOneDevice) {
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

TEST_F(PartitionedVariables, APartGetsAFormForAValueThatIsFrequent) {
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
TEST_F(PartitionedVariables, WhatAllValuesShareIsChargedOnce) {
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
TEST_F(PartitionedVariables, WhatHasNoPartitionForAllValuesHasOneForEach) {
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

// A loop runs as often as the values say, however large its bound is.
TEST_F(PartitionedVariables, ALoopOfTheRunDoesNoMoreThanTheRunAsks) {
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

TEST_F(PartitionedVariables, APartWithVariablesTravelsOnce) {
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

}  // namespace
}  // namespace telegrad
