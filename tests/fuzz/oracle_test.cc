// Graphs that read a slot as it is before and after a store: found by fuzzing, each scheduled
// wrongly once.
#include "tests/fuzz/oracle.h"

#include <gtest/gtest.h>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"

namespace telegrad::fuzz {
namespace {

// Schedules, lowers, runs and compares. A difference ends the process.
void ExpectSame(std::string_view text) {
  Graph graph;
  const auto sink = Parse(text, &graph);
  ASSERT_TRUE(sink.ok()) << sink.status();
  ASSERT_TRUE(Verify(*sink, kTensorLevel).ok());
  Budget budget;
  const auto schedule = ScheduleGraph(*sink, &budget);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  std::vector<Program> programs;
  for (const ScheduledKernel& kernel : schedule->kernels) {
    auto program = Lower(kernel.graph, Target(), "test", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    programs.push_back(*std::move(program));
  }
  EXPECT_TRUE(CompareWithReference(*sink, *schedule, programs));
}

TEST(Oracle, OneKernelReadsASlotBeforeAndAfterAStore) {
  ExpectSame(R"(
    %0 = param i32 [8] slot=1
    %1 = param i32 [8] slot=2
    %2 = store %0 %1
    %3 = after i32 [8] %0 %2
    %4 = cmpeq bool [8] %3 %0
    %5 = param bool [8] slot=0
    %6 = store %5 %4
    %7 = sink %6)");
}

// The second store's target is not a view of the first one's AFTER; only its value depends on it.
TEST(Oracle, AReaderOfAVersionRunsBeforeTheNextStore) {
  ExpectSame(R"(
    %0 = param i32 [8] slot=0
    %1 = param i32 [8] slot=1
    %2 = store %0 %1
    %3 = after i32 [8] %0 %2
    %4 = add i32 [8] %3 %1
    %5 = store %0 %4
    %6 = param i32 [8] slot=2
    %7 = mul i32 [8] %3 %1
    %8 = store %6 %7
    %9 = sink %5 %8)");
}

TEST(Oracle, AStoreOfNoElementsOrdersNothingElse) {
  ExpectSame(R"(
    %0 = param i32 [8] slot=0
    %1 = shrink i32 [0] %0 pairs=[0, 0]
    %2 = const i32 1
    %3 = store %1 %2
    %4 = after i32 [8] %0 %3
    %5 = param i32 [8] slot=1
    %6 = store %4 %5
    %7 = param i32 [8] slot=2
    %8 = store %7 %0
    %9 = sink %6 %8)");
}

}  // namespace
}  // namespace telegrad::fuzz
