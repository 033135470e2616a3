// telegrad-opt --eval: graphs and programs get the same inputs, and the first difference beyond
// the tolerance is named.
#include "engine/tools/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "engine/tools/pieces.h"

namespace telegrad {
namespace {

constexpr std::string_view kGraph = R"(
%0 = param i32 [3] slot=1
%1 = param i32 [3] slot=0
%2 = const i32 5
%3 = add i32 [3] %1 %2
%4 = store %0 %3
%5 = sink %4
)";

// The same with each kernel as a program, by way of memory between them; ADDEND is added in all.
std::string Programs(std::string_view addend) {
  return absl::StrCat(R"(
--- a(temporary0, slot0)
program a iterations=1 flops=3 bytes=24 arguments=[i32 3 write, i32 3 read]
%0 = param i32 [3] slot=0
%1 = param i32 [3] slot=1
%2 = const i32 3
%3 = iota i64 [3]
%4 = index i32 [3] %1 %3
%5 = load i32 [3] %4
%6 = add i32 [3] %5 %2
%7 = index i32 [3] %0 %3
%8 = store %7 %6
--- b(slot1, temporary0)
program b iterations=1 flops=3 bytes=24 arguments=[i32 3 write, i32 3 read]
%0 = param i32 [3] slot=0
%1 = param i32 [3] slot=1
%2 = const i32 )",
                      absl::string_view(addend.data(), addend.size()), R"(
%3 = iota i64 [3]
%4 = index i32 [3] %1 %3
%5 = load i32 [3] %4
%6 = add i32 [3] %5 %2
%7 = index i32 [3] %0 %3
%8 = store %7 %6
)");
}

Outputs Evaluated(std::string_view text, uint64_t seed) {
  Budget budget;
  const auto pieces = ParsePieces(text, -1);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  const auto out = EvaluatePieces(*pieces, seed, &budget);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() && out->has_value() ? **out : Outputs();
}

TEST(EvaluateTest, GraphsAndProgramsSeeTheSameInputs) {
  const Outputs graph = Evaluated(kGraph, 3), programs = Evaluated(Programs("2"), 3);
  EXPECT_EQ(graph.size(), 2u);
  EXPECT_EQ(programs.size(), 2u) << "what is between programs is no output";
  EXPECT_EQ(FirstDifference(graph, programs, 0), "");
  EXPECT_NE(FirstDifference(graph, Evaluated(kGraph, 4), 0), "") << "the seed does not matter";
}

TEST(EvaluateTest, NamesTheFirstDifference) {
  EXPECT_THAT(
      FirstDifference(Evaluated(kGraph, 3), Evaluated(Programs("9"), 3), 0),
      ::testing::MatchesRegex("slot1 differs at element 0 of type i32: .* before, .* after"));
}

TEST(EvaluateTest, KernelsAreNotRun) {
  Budget budget;
  const auto pieces = ParsePieces(R"(
%0 = param f32 [4] slot=0
%1 = const i64 4
%2 = range i64 %1 id=0 type=loop
%3 = index f32 %0 %2
%4 = const f32 1
%5 = store %3 %4
%6 = end %5 %2
%7 = sink %6
)",
                                  -1);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  const auto out = EvaluatePieces(*pieces, 1, &budget);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_FALSE(out->has_value());
}

Outputs Floats(std::initializer_list<float> values) {
  SlotValue value{DType::kFloat32, std::vector<uint8_t>(4 * values.size())};
  std::memcpy(value.bytes.data(), values.begin(), value.bytes.size());
  return {{"slot0", value}};
}

TEST(EvaluateTest, FloatsMayDifferByTheTolerance) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(FirstDifference(Floats({1, nan}), Floats({1, -nan}), 0), "");
  EXPECT_NE(FirstDifference(Floats({1}), Floats({nan}), 1e9), "");
  EXPECT_EQ(FirstDifference(Floats({1000}), Floats({1001}), 2e-3), "");
  EXPECT_EQ(FirstDifference(Floats({1000, 1}), Floats({1000, 1.5}), 2e-3),
            "slot0 differs at element 1 of type f32: 1 before, 1.5 after");
}

}  // namespace
}  // namespace telegrad
