// Binding, caching and replay of executables on the CPU device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/execution/executable_cache.h"
#include "engine/execution/execution_test.h"
#include "engine/execution/run_queues.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

using ExecutableTest = ExecutionTest;

TEST_F(ExecutableTest, RunsAgainWithOtherBuffersAndCompilesNothing) {
  ExecutableCache cache({});
  const auto first = Get(cache, Add(1));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->cached);
  for (int run = 0; run < 3; ++run) {
    const auto again = Get(cache, Add(1));
    ASSERT_TRUE(again.ok() && again->cached);
    const BufferView in = Buffer(32), out = Buffer(32);
    static_cast<float*>(in.memory->host())[7] = static_cast<float>(run);
    const auto done = again->executable->Submit(std::vector{in, out}, {});
    ASSERT_TRUE(done.ok()) << done.status();
    ASSERT_TRUE(done->Wait().ok());
    EXPECT_EQ(static_cast<float*>(out.memory->host())[7], static_cast<float>(run) + 1);
  }
  const ExecutableCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.hits, 3u);
  EXPECT_EQ(stats.kernels_compiled, 1u);
  EXPECT_EQ(stats.launches, 3u);
  EXPECT_EQ(stats.submissions, 3u);
  EXPECT_EQ(stats.bounds.proved, 2);  // a load and a store
  EXPECT_EQ(stats.bounds.gated + stats.bounds.data_dependent, 0);
}

TEST_F(ExecutableTest, HasEndedWhenACallerThatWaitsHasSubmitted) {
  constexpr int64_t kElements = 1 << 20;  // more than what any submitter runs
  ExecutableCache cache({});
  const auto executable = Make(cache, ThroughTemporary(kElements));
  ASSERT_NE(executable, nullptr);
  const BufferView in = Buffer(4 * kElements), out = Buffer(4 * kElements);
  for (int64_t i = 0; i < kElements; ++i) static_cast<float*>(in.memory->host())[i] = 3;
  const auto done = executable->Submit(std::vector{in, out}, {}, nullptr, nullptr, WaitingQueues());
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_GE(done->timeline->value(), done->value);
  EXPECT_EQ(static_cast<float*>(out.memory->host())[kElements - 1], 9);
}

TEST_F(ExecutableTest, TellsHowManyKernelsAreCompiled) {
  ExecutableCache cache({});
  const auto progress = std::make_shared<WorkProgress>();
  const FrozenGraph graph = ThroughTemporary(64);
  const auto get = [&] {
    Budget budget;
    budget.SetProgress(progress);
    return cache.Get(ContentHash(graph.root()), graph, *device_, &budget, {});
  };
  const auto result = get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->executable->num_launches(), 2);
  EXPECT_EQ(progress->state().total, 2);
  EXPECT_EQ(progress->state().done, 2);
  ASSERT_TRUE(get()->cached);
  EXPECT_EQ(progress->state().total, 2);  // nothing began
}

TEST(WorkProgress, ANewStretchBeginsAfterAPause) {
  WorkProgress progress;
  progress.Begin(3);
  progress.Done(1);
  progress.Begin(2);  // beside the others
  EXPECT_EQ(progress.state().total, 5);
  progress.Done(4);
  EXPECT_EQ(progress.state().done, 5);
  progress.Begin(7);
  EXPECT_EQ(progress.state().done, 0);
  EXPECT_EQ(progress.state().total, 7);
}

TEST_F(ExecutableTest, SaysWhatEachSlotIs) {
  ExecutableCache cache({});
  const auto result = Get(cache, Add(1));
  ASSERT_TRUE(result.ok());
  const std::span<const SlotUse> slots = result->executable->slots();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_TRUE(slots[0].read && !slots[0].written);
  EXPECT_TRUE(slots[1].written && !slots[1].read);
  EXPECT_EQ(slots[1].bytes, 32);
}

TEST_F(ExecutableTest, RefusesBuffersThatDoNotFit) {
  ExecutableCache cache({});
  const auto result = Get(cache, Add(1));
  ASSERT_TRUE(result.ok());
  const Executable& e = *result->executable;
  const BufferView whole = Buffer(64);
  const auto refused = [&](std::vector<BufferView> bindings, std::string_view why) {
    const absl::Status status = e.Submit(bindings, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(why)));
  };
  refused({whole}, "1 buffers for 2 slots");
  refused({whole, {}}, "slot 1 has no buffer");
  refused({whole, {Buffer(31).memory, 0, 31}}, "slot 1 has 31 bytes, expected 32");
  refused({whole, {Buffer(64).memory, 2, 62}}, "starts at byte 2");
  refused({whole, whole}, "slots 0 and 1 overlap, and slot 1 is written");
  refused({{whole.memory, 0, 32}, {whole.memory, 28, 36}}, "overlap");
  const auto read_only = std::make_shared<ReadOnlyMemory>(Buffer(32).memory);
  refused({whole, {read_only, 0, 32}}, "the buffer of slot 1 is read-only");
  EXPECT_TRUE(e.Submit(std::vector<BufferView>{{read_only, 0, 32}, Buffer(32)}, {}).ok());
  EXPECT_TRUE(
      e.Submit(std::vector<BufferView>{{whole.memory, 0, 32}, {whole.memory, 32, 32}}, {}).ok());
  ASSERT_TRUE(device_->queue().last().Wait().ok());
}

TEST_F(ExecutableTest, ForgetsTheLeastRecentlyUsed) {
  ExecutableCache cache({.executables = 2, .kernels = 2});
  for (double addend : {1, 2, 1, 3}) ASSERT_TRUE(Get(cache, Add(addend)).ok());
  EXPECT_TRUE(Get(cache, Add(1))->cached);
  EXPECT_FALSE(Get(cache, Add(2))->cached) << "2 was the oldest when 3 came";
}

TEST_F(ExecutableTest, SharesEqualKernelsBetweenGraphs) {
  ExecutableCache cache({});
  ASSERT_TRUE(Get(cache, Add(5)).ok());
  Graph g;  // the same kernel twice, on other slots
  const Shape shape{8};
  std::vector<UOp> stores;
  for (int i = 0; i < 2; ++i) {
    const UOp in = g.Param(2 * i, DType::kFloat32, shape);
    const UOp sum = g.Make(Op::kAdd, {in, g.ConstFloat(DType::kFloat32, 5)});
    stores.push_back(g.Make(Op::kStore, {g.Param(2 * i + 1, DType::kFloat32, shape), sum}));
  }
  const auto twice = Get(cache, Freeze(g.Make(Op::kSink, DType::kVoid, stores)));
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->executable->kernels().size(), 2u);
  EXPECT_EQ(cache.stats().kernels_compiled, 1u);
}

TEST_F(ExecutableTest, CompilesOnceForManyWhoAskAtOnce) {
  ExecutableCache cache({});
  const FrozenGraph graph = Add(9);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(Get(cache, graph).ok()); });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(cache.stats().misses, 1u);
  EXPECT_EQ(cache.stats().kernels_compiled, 1u);
}

}  // namespace
}  // namespace telegrad
