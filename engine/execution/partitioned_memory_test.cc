// Memory of graphs with variables over several devices: where the bounds find none, a run has what
// its values need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/execution/partitioned_test.h"
#include "engine/execution/shared_caches.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

using PartitionedMemory = PartitionedTest;

// Where what is handed over would not fit for the greatest values, others still run.
TEST_F(PartitionedMemory, BoundsThatDoNotFitLeaveAPartitionForEachSetOfValues) {
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
TEST_F(PartitionedMemory, BoundsThatDoNotFitBesideTemporariesDoNotEither) {
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
TEST_F(PartitionedMemory, MoreBytesThanCanBeCountedAreRefused) {
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

}  // namespace
}  // namespace telegrad
