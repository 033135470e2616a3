// What a run takes, how it is cut, and how it ends when something goes wrong.
#include "engine/execution/planned_executable.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "engine/execution/execution_test.h"
#include "engine/execution/prediction.h"

namespace telegrad {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

using PlannedExecutableTest = ExecutionTest;

TEST_F(PlannedExecutableTest, SaysWhatARunTakes) {
  ExecutableCache cache({});
  const auto e = Make(cache, ThroughTemporary(1024));
  const RunCost cost = e->cost();
  EXPECT_EQ(cost.input_bytes, 4096);
  EXPECT_EQ(cost.output_bytes, 4096);
  EXPECT_EQ(cost.temporary_bytes, 4096);
  EXPECT_EQ(cost.peak_bytes(), 3 * 4096);
  ASSERT_EQ(e->kernels().size(), 2u);
  EXPECT_EQ(cost.bytes, 4 * 4096) << "read, written; read, written";
  EXPECT_EQ(cost.flops, 2 * 1024);
  const Rates rates = device_->rates();
  EXPECT_DOUBLE_EQ(cost.seconds, cost.bytes / rates.bytes);
}

TEST_F(PlannedExecutableTest, SaysWhatItsKernelsAre) {
  ExecutableCache cache({});
  const auto e = Make(cache, ThroughTemporary(1024));
  const KernelInfo& first = e->kernels()[0];
  const KernelInfo& second = e->kernels()[1];
  EXPECT_NE(first.name, second.name);
  EXPECT_FALSE(first.reasons.empty());
  ASSERT_EQ(first.arguments.size(), 2u);
  EXPECT_TRUE(first.arguments[0].temporary && first.arguments[0].written);
  EXPECT_TRUE(!first.arguments[1].temporary && first.arguments[1].read);
  EXPECT_EQ(first.arguments[1].slot, 0);
  EXPECT_EQ(first.arguments[1].bytes, 4096);
}

TEST(Prediction, IsTheSlowerOfArithmeticAndMemory) {
  EXPECT_DOUBLE_EQ(
      PredictedSeconds(100, 10, {.flops = {{Arithmetic::kVectorF32, 50}}, .bytes = 10}), 2);
  EXPECT_DOUBLE_EQ(
      PredictedSeconds(10, 100, {.flops = {{Arithmetic::kVectorF32, 50}}, .bytes = 10}), 10);
  EXPECT_EQ(PredictedSeconds(10, 100, {}), 0) << "a device that declares nothing";
}

TEST(Prediction, SegmentsAreShortAndAtMostOneAnIteration) {
  EXPECT_EQ(SegmentsOf(0, 100), 1);
  EXPECT_EQ(SegmentsOf(kSegmentSeconds, 100), 1);
  EXPECT_EQ(SegmentsOf(2.5 * kSegmentSeconds, 100), 3);
  EXPECT_EQ(SegmentsOf(2.5 * kSegmentSeconds, 2), 2);
  EXPECT_EQ(SegmentsOf(1e30, 1), 1);
  EXPECT_EQ(SegmentsOf(1, 0), 1);
  EXPECT_EQ(SegmentsOf(1, 64, 2), 32) << "each has work for both threads";
  EXPECT_EQ(SegmentsOf(1, 65, 2), 32);
  EXPECT_EQ(SegmentsOf(1, 3, 4), 1);
  EXPECT_EQ(SegmentsOf(1, 1000, 4), 200);
}

// 64 Ki floats on a device that says that it needs 12.5 ms for them: three segments.
constexpr int64_t kMany = 64 << 10;
constexpr Rates kSlow{.flops = {{Arithmetic::kVectorF32, 1e12}}, .bytes = 2 * 4 * kMany / 12.5e-3};

TEST_F(PlannedExecutableTest, CutsALongKernel) {
  ExecutableCache cache({});
  const FrozenGraph graph = Add(1, kMany);
  std::vector<float> in(kMany), want(kMany);
  std::iota(in.begin(), in.end(), 0.0f);
  std::iota(want.begin(), want.end(), 1.0f);

  device_->declared = kSlow;
  const auto e = Make(cache, graph);
  ASSERT_EQ(e->kernels().size(), 1u);
  ASSERT_GE(e->kernels()[0].iterations, 3);
  EXPECT_EQ(e->kernels()[0].segments, 3);
  const BufferView out = Buffer(4 * kMany);
  const auto trace = std::make_shared<RunTrace>();
  const auto done = e->Submit(std::vector{Buffer(in), out}, {}, trace);
  ASSERT_TRUE(done.ok() && done->Wait().ok());
  EXPECT_EQ(Values(out), want);
  EXPECT_EQ(cache.stats().submissions, 1u);
  EXPECT_EQ(cache.stats().launches, 1u);
  EXPECT_EQ(cache.stats().segments, 3u);
  EXPECT_EQ(trace->events().size(), 3u) << "as many as were launched";
  EXPECT_EQ(trace->events()[0].name, e->kernels()[0].name);
}

TEST_F(PlannedExecutableTest, ASegmentHasIterationsForTheWholeDevice) {
  device_->declared = kSlow;
  ExecutableCache first({});
  const int64_t iterations = Make(first, Add(1, kMany))->kernels()[0].iterations;
  ASSERT_GE(iterations, 3);
  for (const auto& [at_once, segments] : {std::pair(iterations / 2, 2), {iterations, 1}}) {
    device_->declared.iterations = at_once;
    ExecutableCache cache({});
    EXPECT_EQ(Make(cache, Add(1, kMany))->kernels()[0].segments, segments);
  }
}

TEST_F(PlannedExecutableTest, ACancelledRunStopsAndPoisonsItsOutputs) {
  ExecutableCache cache({});
  device_->declared = kSlow;
  const auto e = Make(cache, Add(1, kMany));
  const BufferView in = Buffer(4 * kMany), out = Buffer(4 * kMany), later = Buffer(4 * kMany);
  const TimelinePoint gate{std::make_shared<Timeline>(), 1};
  const auto cancellation = std::make_shared<Cancellation>();
  const auto trace = std::make_shared<RunTrace>();
  const auto run = e->Submit(std::vector{in, out}, std::vector{gate}, trace, cancellation);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto next = e->Submit(std::vector{out, later}, std::vector{*run});
  cancellation->Cancel();
  gate.timeline->Signal(1);
  EXPECT_TRUE(absl::IsCancelled(run->Wait())) << run->Wait();
  EXPECT_EQ(next->Wait(), run->Wait()) << "and what reads them";
  EXPECT_TRUE(trace->events().empty()) << "no segment ran";
  EXPECT_THAT(Values(out), Each(0.0f));
}

TEST_F(PlannedExecutableTest, AFailureReachesWhatDependsOnItAndNothingElse) {
  ExecutableCache cache({});
  const auto e = Make(cache, Add(1));
  const BufferView in = Buffer(32), a = Buffer(32), b = Buffer(32), c = Buffer(32);
  const TimelinePoint lost{std::make_shared<Timeline>(), 1};
  const auto failed = e->Submit(std::vector{in, a}, std::vector{lost});
  ASSERT_TRUE(failed.ok());
  const auto dependent = e->Submit(std::vector{a, b}, std::vector{*failed});
  const auto other = e->Submit(std::vector{in, c}, {});
  const absl::Status why = absl::DataLossError("the disk is lost");
  lost.timeline->Signal(1, why);
  EXPECT_EQ(failed->Wait(), why);
  EXPECT_EQ(dependent->Wait(), why);
  EXPECT_TRUE(other->Wait().ok());
  EXPECT_THAT(Values(a), Each(0.0f));
  EXPECT_THAT(Values(b), Each(0.0f));
  EXPECT_THAT(Values(c), Each(1.0f));
}

// --- memory ---

class SmallDeviceTest : public ExecutionTest {
 protected:
  SmallDeviceTest() : ExecutionTest(1 << 20) {}
};

TEST_F(SmallDeviceTest, RefusesMoreTemporaryMemoryThanTheDeviceHas) {
  ExecutableCache cache({});
  const absl::Status status = Get(cache, ThroughTemporary(int64_t{1} << 20)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("4194304 bytes"));
  EXPECT_EQ(cache.stats().kernels_compiled, 0u) << "known before anything is compiled";
}

TEST_F(SmallDeviceTest, RefusesARunWhoseTemporariesDoNotFitNow) {
  ExecutableCache cache({});
  const auto e = Make(cache, ThroughTemporary(64 << 10));  // 256 KiB
  const BufferView in = Buffer(256 << 10), out = Buffer(256 << 10);
  {
    const BufferView more = Buffer(300 << 10);
    const int64_t used = device_->memory_used();
    const absl::Status status = e->Submit(std::vector{in, out}, {}).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("needs 262144 bytes for temporaries"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("whose limit is 1048576 bytes"));
    EXPECT_EQ(device_->memory_used(), used);
    EXPECT_EQ(cache.stats().submissions, 0u);
  }
  const auto done = e->Submit(std::vector{in, out}, {});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->Wait().ok());
}

// Many runs at a time share what one of them reserved; with memory of their own they would need
// 8 MiB of 1.
TEST_F(SmallDeviceTest, RunsAtTheSameTimeDoNotOvercommit) {
  ExecutableCache cache({});
  const auto e = Make(cache, ThroughTemporary(32 << 10));
  const BufferView in = Buffer(128 << 10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&e, in, out = Buffer(128 << 10)] {
      std::vector<TimelinePoint> points;
      for (int i = 0; i < 32; ++i) {
        const auto point = e->Submit(std::vector{in, out}, {});
        ASSERT_TRUE(point.ok()) << point.status();
        points.push_back(*point);
      }
      for (const TimelinePoint& point : points) EXPECT_TRUE(point.Wait().ok());
    });
  }
  for (std::thread& t : threads) t.join();
}

// Devices that keep tenants apart are other objects for each, with one limit.
TEST(AllTemporariesTest, AreThoseOfEveryTenantOfADevice) {
  const auto open = [](int index) {
    return *OpenCpu({.index = index, .threads = 1, .memory_limit = 1 << 20});
  };
  const auto alice = open(0), bob = open(0), other = open(1);
  const auto all = std::make_shared<AllTemporaries>();
  std::vector<std::shared_ptr<Temporaries>> kept;
  for (Device* const device : {alice.get(), bob.get(), other.get()}) {
    kept.push_back(std::make_shared<Temporaries>(device, nullptr, all));
    all->Add(kept.back());
    ASSERT_TRUE(kept.back()->Shared(4096).ok());
    EXPECT_EQ(device->memory_used(), 4096);
  }
  all->Release(*alice);
  EXPECT_EQ(alice->memory_used(), 0);
  EXPECT_EQ(bob->memory_used(), 0);
  EXPECT_EQ(other->memory_used(), 4096);
}

TEST_F(SmallDeviceTest, GivesBackTemporariesThatNoRunUses) {
  ExecutableCache cache({});
  const auto e = Make(cache, ThroughTemporary(64 << 10));
  const BufferView in = Buffer(256 << 10), out = Buffer(256 << 10);
  const int64_t before = device_->memory_used();
  ASSERT_TRUE(e->Submit(std::vector{in, out}, {})->Wait().ok());
  EXPECT_EQ(device_->memory_used(), before + (256 << 10)) << "kept for the next run";
  cache.ReleaseTemporaries();
  EXPECT_EQ(device_->memory_used(), before);
  EXPECT_TRUE(e->Submit(std::vector{in, out}, {})->Wait().ok());
}

}  // namespace
}  // namespace telegrad
