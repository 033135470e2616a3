#include "engine/rewrite/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/status.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PassTest : public ::testing::Test {
 protected:
  Pass Wrap(std::string_view name, Op op) {
    return {name, [this, op](UOp root) { return graph_.Make(op, {root}); }};
  }

  Graph graph_;
  Budget budget_;
  UOp root_ = graph_.Param(0, DType::kFloat32, Shape{4});
};

TEST_F(PassTest, RunsInOrderTimesAndDumps) {
  const Pass passes[] = {Wrap("negate", Op::kNeg), Wrap("root", Op::kSqrt)};
  std::vector<PassTime> times;
  std::vector<std::string> dumped;
  PassOptions options;
  options.budget = &budget_;
  options.times = &times;
  options.dump = [&](std::string_view name, UOp u) {
    dumped.push_back(StrCat(name, ":", Name(u.op())));
  };
  const auto out = RunPasses(&graph_, root_, passes, options);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, graph_.Make(Op::kSqrt, {graph_.Make(Op::kNeg, {root_})}));
  EXPECT_THAT(dumped, ElementsAre("negate:neg", "root:sqrt"));
  EXPECT_EQ(times.size(), 2u);
}

TEST_F(PassTest, SkipsDisabledPasses) {
  const Pass passes[] = {Wrap("negate", Op::kNeg), Wrap("root", Op::kSqrt)};
  const std::vector<std::string> disabled{"negate"};
  PassOptions options;
  options.disabled = disabled;
  const auto out = RunPasses(&graph_, root_, passes, options);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(*out, graph_.Make(Op::kSqrt, {root_}));
}

TEST_F(PassTest, ErrorsNameThePass) {
  PassOptions options;
  options.budget = &budget_;
  options.verify = [](UOp u) {
    return u.is(Op::kNeg) ? Internal("no negation") : absl::OkStatus();
  };
  const Pass passes[] = {Wrap("negate", Op::kNeg)};
  EXPECT_THAT(std::string(RunPasses(&graph_, root_, passes, options).status().message()),
              HasSubstr("negate: no negation"));

  const Pass bad[] = {Wrap("logic", Op::kAnd)};
  EXPECT_THAT(std::string(RunPasses(&graph_, root_, bad, options).status().message()),
              HasSubstr("logic: "));

  budget_.Cancel();
  EXPECT_EQ(RunPasses(&graph_, root_, passes, options).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace telegrad
