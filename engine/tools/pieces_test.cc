// Texts with several graphs and programs: they are read as they are printed, one can be
// selected, and errors count the lines of the whole text.
#include "engine/tools/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kKernel = R"(%0 = param f32 [4] slot=0
%1 = const i64 4
%2 = range i64 %1 id=0 type=loop
%3 = index f32 %0 %2
%4 = const f32 1
%5 = store %3 %4
%6 = end %5 %2
%7 = sink %6
)";

TEST(PiecesTest, ReadWhatTheyPrint) {
  const std::string text =
      StrCat("--- one(slot2): stores: twice\n", kKernel, "--- two(slot0, temporary1)\n", kKernel);
  const auto pieces = ParsePieces(StrCat("# a comment\n\n", text), -1);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_EQ(pieces->size(), 2u);
  EXPECT_EQ(pieces->front().name, "one");
  EXPECT_EQ(pieces->front().note, "stores: twice");
  EXPECT_EQ(pieces->front().levels, kKernelLevel);
  EXPECT_EQ(pieces->front().arguments.size(), 1u);
  EXPECT_THAT(pieces->back().bindings, ElementsAre("slot0", "temporary1"));
  EXPECT_EQ(PrintPieces(*pieces), text);
}

TEST(PiecesTest, OnePieceHasNoHeader) {
  const auto pieces = ParsePieces(kKernel, -1);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_EQ(PrintPieces(*pieces), kKernel);
}

TEST(PiecesTest, PicksOne) {
  const auto pieces = ParsePieces(StrCat("--- a\nnonsense\n--- b\n", kKernel), 1);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_EQ(pieces->size(), 1u);
  EXPECT_EQ(pieces->front().name, "b");
}

TEST(PiecesTest, ErrorsCountTheLinesOfTheWholeText) {
  const auto pieces = ParsePieces(StrCat("--- a\n", kKernel, "--- b\n%0 = nonsense\n"), -1);
  EXPECT_THAT(std::string(pieces.status().message()), HasSubstr("line 11: "));
}

TEST(PiecesTest, LevelsAreTheNarrowest) {
  const auto tensor =
      ParsePieces("%0 = param f32 [4] slot=0\n%1 = store %0 %0\n%2 = sink %1\n", -1);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->front().levels, kTensorLevel);
  // A SINK is of the kernel level and none of the program level, a BARRIER the reverse.
  const auto between = ParsePieces("%0 = barrier scope=workgroup\n%1 = sink %0\n", -1);
  ASSERT_TRUE(between.ok()) << between.status();
  EXPECT_EQ(between->front().levels, kKernelLevel | kProgramLevel);
}

}  // namespace
}  // namespace telegrad
