// Several executables as one leave what they leave one after the other, in one submission.
#include "engine/execution/captured_graph.h"

#include <gmock/gmock.h>

#include <numeric>

#include "engine/execution/execution_test.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

using CaptureGraphTest = ExecutionTest;

constexpr int64_t kN = 1000;

TEST_F(CaptureGraphTest, IsOneSubmissionWithTheSameResults) {
  ExecutableCache cache({});
  const auto add = Make(cache, Add(3, kN));
  const auto through = Make(cache, ThroughTemporary(kN));
  std::vector<float> in(kN);
  std::iota(in.begin(), in.end(), -100.0f);
  // b = a + 3, c = -b * flip(-b), b = c + 3, d = b + 3: what is written is read, and written again.
  const struct {
    const std::shared_ptr<const Executable>& run;
    std::vector<int32_t> slots;
  } steps[] = {{add, {0, 1}}, {through, {1, 2}}, {add, {2, 1}}, {add, {1, 3}}};

  std::vector<BufferView> apart{Buffer(in), Buffer(4 * kN), Buffer(4 * kN), Buffer(4 * kN)};
  for (const auto& [run, slots] : steps) {
    const std::vector<BufferView> bindings{apart[static_cast<size_t>(slots[0])],
                                           apart[static_cast<size_t>(slots[1])]};
    ASSERT_TRUE(run->Submit(bindings, {})->Wait().ok());
  }
  EXPECT_EQ(cache.stats().submissions, 4u);
  EXPECT_EQ(cache.stats().launches, 5u);

  CaptureGraph capture;
  for (const auto& [run, slots] : steps) ASSERT_TRUE(capture.Add(run, slots).ok());
  const auto captured = std::move(capture).Finish();
  ASSERT_TRUE(captured.ok()) << captured.status();
  EXPECT_EQ((*captured)->num_launches(), 5);
  EXPECT_EQ((*captured)->cost().temporary_bytes, through->cost().temporary_bytes) << "once";
  EXPECT_TRUE((*captured)->slots()[1].read && (*captured)->slots()[1].written);
  EXPECT_FALSE((*captured)->slots()[0].written);

  const uint64_t before = device_->queue().last().value;
  const std::vector<BufferView> together{Buffer(in), Buffer(4 * kN), Buffer(4 * kN),
                                         Buffer(4 * kN)};
  const auto done = (*captured)->Submit(together, {});
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_TRUE(done->Wait().ok());
  EXPECT_EQ(device_->queue().last().value, before + 1);
  EXPECT_EQ(cache.stats().submissions, 5u);
  EXPECT_EQ(cache.stats().launches, 10u);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(Values(together[i]), Values(apart[i])) << "slot " << i;
  }
}

TEST_F(CaptureGraphTest, ChecksBindingsOnceForAllRuns) {
  ExecutableCache cache({});
  const auto add = Make(cache, Add(1));
  CaptureGraph capture;
  ASSERT_TRUE(capture.Add(add, std::vector<int32_t>{0, 1}).ok());
  ASSERT_TRUE(capture.Add(Make(cache, Add(1, 4)), std::vector<int32_t>{1, 2}).ok());
  const auto captured = std::move(capture).Finish();
  ASSERT_TRUE(captured.ok());
  const BufferView a = Buffer(32), b = Buffer(32), c = Buffer(16), small = Buffer(16);
  EXPECT_TRUE((*captured)->Submit(std::vector{a, b, c}, {})->Wait().ok());
  EXPECT_TRUE(absl::IsInvalidArgument((*captured)->Submit(std::vector{a, small, c}, {}).status()));
  const absl::Status overlap = (*captured)->Submit(std::vector{a, b, a}, {}).status();
  EXPECT_THAT(std::string(overlap.message()), HasSubstr("slots 0 and 2 overlap"));
}

TEST_F(CaptureGraphTest, RefusesWhatDoesNotFitTogether) {
  ExecutableCache cache({});
  const auto add = Make(cache, Add(1));
  CaptureGraph capture;
  const auto refused = [&](const std::shared_ptr<const Executable>& run, std::vector<int32_t> slots,
                           std::string_view why) {
    const absl::Status status = capture.Add(run, slots);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(why)));
  };
  refused(add, {0}, "1 slots for the 2 of a run");
  refused(add, {0, -1}, "slot 1 of a run is not mapped to a slot of the capture");
  refused(add, {4, 4}, "slots 0 and 1 of a run are both slot 4");
  EXPECT_TRUE(absl::IsInvalidArgument(CaptureGraph().Finish().status()));

  ASSERT_TRUE(capture.Add(add, std::vector<int32_t>{0, 1}).ok());
  Graph g;
  const UOp x = g.Param(0, DType::kInt32, Shape{8});
  const auto integers =
      Make(cache, Stores(g, {{g.Param(1, DType::kInt32, Shape{8}), g.Make(Op::kNeg, {x})}}));
  refused(integers, {1, 2}, "slot 1 is i32 in one run and f32 in another");
  ExecutableCache other({});
  refused(Make(other, Add(1)), {1, 2}, "another device or cache");
}

}  // namespace
}  // namespace telegrad
