// The number of asynchronous copies that a wait may leave unfinished, in straight code and in
// loops.
#include "engine/render/copy_groups.h"

#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using testing::ElementsAre;

// Of each WAIT in the order; -1: nothing to wait for.
std::vector<int64_t> Unfinished(std::string_view body) {
  const auto program =
      ParseProgram(StrCat("program p iterations=1 flops=0 bytes=0 arguments=[f32 64 read]\n"
                          "%0 = const i64 4\n%1 = range i64 %0 id=0 type=local\n"
                          "%2 = param f32 [64] slot=0\n%3 = buffer f32 [64] space=local slot=0\n"
                          "%4 = index f32 %2 %0\n%5 = index f32 %3 %0\n",
                          body, "%99 = end %1\n"));
  EXPECT_TRUE(program.ok()) << program.status();
  std::vector<int64_t> out;
  if (!program.ok()) return out;
  // The hardware does not count copies of 3 rows.
  const CopyGroups groups(*program, [](UOp copy) { return copy.box_rows() != 3; });
  for (uint32_t id : program->order) {
    const UOp u = program->graph->at(id);
    if (u.is(Op::kWait)) out.push_back(groups.Unfinished(u).value_or(-1));
  }
  return out;
}

std::string Copy(int label, int rows) {
  return StrCat("%", label, " = copy_async %5 %4 rows=", rows,
                " columns=1 to_stride=1 from_stride=1\n");
}

TEST(CopyGroups, WhatWasStartedTogetherEndsTogether) {
  EXPECT_THAT(Unfinished(Copy(10, 1) + Copy(11, 2) + "%12 = wait %10 n=0\n" + Copy(13, 4) +
                         "%14 = wait %11 n=0\n%15 = wait %10 %13 n=0\n"),
              ElementsAre(0, 1, 0));
}

TEST(CopyGroups, CopiesThatAreNotCountedAreComplete) {
  EXPECT_THAT(Unfinished(Copy(10, 3) + Copy(11, 1) + "%12 = wait %10 n=0\n%13 = wait %11 n=0\n"),
              ElementsAre(-1, 0));
}

// As tests/programs/mma_gemm.uop does it: a prologue, and one round ahead of the loop.
TEST(CopyGroups, RoundsOfALoop) {
  EXPECT_THAT(Unfinished(Copy(10, 1) + Copy(11, 2) + "%20 = range i64 %0 id=1 type=loop\n" +
                         Copy(12, 4) + Copy(13, 5) +
                         "%14 = wait %10 %11 n=0\n%15 = wait %12 %13 n=1\n%21 = end %20\n"
                         "%22 = wait %12 %13 n=0\n"),
              ElementsAre(1, 1, 0));
}

// Copies in loops and roles that may not run are not counted; one outside of loops ran once.
TEST(CopyGroups, OnlyWhatIsCertain) {
  EXPECT_THAT(Unfinished(Copy(10, 1) + "%20 = range i64 %0 id=1 type=loop\n" + Copy(11, 2) +
                         "%21 = end %20\n%22 = role first=0 count=1\n" + Copy(12, 4) +
                         "%23 = end %22\n%14 = wait %10 n=0\n%15 = wait %10 n=1\n"
                         "%16 = wait %11 n=2\n"),
              ElementsAre(0, -1, 2));
}

}  // namespace
}  // namespace telegrad
