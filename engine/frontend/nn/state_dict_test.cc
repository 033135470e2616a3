// State dictionaries: listing, matching by name with conversion of floats, renaming, and errors
// about missing, unexpected and misshapen entries.
#include "engine/frontend/nn/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// State "w" f32 [2], "layer.b" f16 [3], "opt.m" f32 [2] and "steps" i32 []; an input and an output.
Plan Example() {
  Builder b;
  const Tensor w = b.Trainable(DType::kFloat32, {2}, "w", Init::Constant(1));
  const Tensor bias = b.Trainable(DType::kFloat16, {3}, "layer.b", Init::Constant(2));
  const Tensor m = b.State(DType::kFloat32, {2}, "opt.m", Init::Constant(0.5));
  const Tensor steps = b.State(DType::kInt32, {}, "steps", Init::Constant(0));
  b.Store(m, w + m + b.Param(DType::kFloat32, {2}, "x"));
  b.Store(steps, steps + 1);
  b.Output(bias, "y");
  return *b.Finish();
}

StateDict Given() {
  return {{"w", HostTensor::Of<float>({2}, {3, 4})},
          {"layer.b", HostTensor::Of<float>({3}, {1, 2.0001f, -1})},
          {"opt.m", HostTensor::Of<float>({2}, {5, 6})},
          {"steps", HostTensor::Of<int32_t>({}, {7})}};
}

std::string Message(const absl::StatusOr<StateDict>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(ToStd(result.status().message()));
}

TEST(StateDict, ListsTheStateAndWhatItBeginsWith) {
  const Plan plan = Example();
  std::vector<std::string> names;
  for (const Slot* slot : StateSlots(plan)) names.push_back(slot->name);
  EXPECT_THAT(names, ElementsAre("w", "layer.b", "opt.m", "steps"));
  const auto initial = InitialState(plan);
  ASSERT_TRUE(initial.ok()) << initial.status();
  EXPECT_THAT(initial->at("layer.b").AsDoubles(), ElementsAre(2, 2, 2));
  EXPECT_EQ(initial->size(), 4u);
}

TEST(StateDict, MatchesByNameAndConvertsFloats) {
  const auto state = MatchState(Example(), Given());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->size(), 4u);
  EXPECT_THAT(state->at("w").Values<float>(), ElementsAre(3, 4));
  EXPECT_EQ(state->at("layer.b").dtype, DType::kFloat16);
  EXPECT_THAT(state->at("layer.b").AsDoubles(), ElementsAre(1, 2, -1));
  EXPECT_THAT(state->at("steps").Values<int32_t>(), ElementsAre(7));
}

TEST(StateDict, RenamesKeepsAndIgnores) {
  StateDict given = {{"module.w", HostTensor::Of<float>({2}, {3, 4})},
                     {"module.norm.b", HostTensor::Of<float>({3}, {1, 2, 3})},
                     {"module.steps", HostTensor::Of<int32_t>({}, {7})},
                     {"extra.k", HostTensor::Of<int32_t>({}, {7})}};
  const StateMatch match{.rename = {{"module.norm.", "layer."}, {"module.", ""}},
                         .keep = {"opt."},
                         .ignore = {"extra."}};
  const auto state = MatchState(Example(), given, match);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->at("layer.b").AsDoubles(), ElementsAre(1, 2, 3));
  EXPECT_THAT(state->at("opt.m").AsDoubles(), ElementsAre(0.5, 0.5));
}

TEST(StateDict, SaysWhatIsMissingUnexpectedAndMisshapen) {
  StateDict given = Given();
  given.erase("opt.m");
  given["w"] = HostTensor::Of<float>({1, 2}, {3, 4});
  given["steps"] = HostTensor::Of<float>({}, {7});
  given["v"] = HostTensor::Of<float>({1}, {7});
  EXPECT_EQ(Message(MatchState(Example(), given)),
            "state: 1 missing: 'opt.m' f32 [2]; 2 not as expected: 'w' is f32 [1, 2], expected f32 "
            "[2], 'steps' is f32 [], expected i32 []; 1 unexpected: 'v' f32 [1]");
  given = Given();
  given["module.w"] = given["w"];
  EXPECT_THAT(Message(MatchState(Example(), given, {.rename = {{"module.", ""}}})),
              HasSubstr("1 given twice: 'w', once as 'w'"));
  given = Given();
  given["w"].bytes.pop_back();
  EXPECT_THAT(Message(MatchState(Example(), given)),
              HasSubstr("'w' f32 [2] holds 7 bytes, expected 8"));
  for (int i = 0; i < 20; ++i) given[StrCat("more", i)] = given["steps"];
  EXPECT_THAT(Message(MatchState(Example(), given)), HasSubstr("20 unexpected: 'more0' i32 []"));
}

}  // namespace
}  // namespace telegrad
