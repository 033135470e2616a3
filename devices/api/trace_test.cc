// What a trace keeps of the events that it is told.
#include "devices/api/trace.h"

#include "gtest/gtest.h"

namespace telegrad {
namespace {

void AddTwo(RunTrace& trace) {
  trace.Add({{.name = "one", .begin_ns = 10, .end_ns = 30}});
  trace.Add({{.name = "two", .begin_ns = 30, .end_ns = 35}});
}

TEST(RunTraceTest, KeepsEventsInTheOrderOfTheirEnds) {
  RunTrace trace;
  AddTwo(trace);
  ASSERT_EQ(trace.events().size(), 2u);
  EXPECT_EQ(trace.events()[0].name, "one");
  EXPECT_EQ(trace.events()[1].name, "two");
  EXPECT_EQ(trace.ns(), 25);
}

TEST(RunTraceTest, WhereTheTimeAloneCountsKeepsNoEvents) {
  RunTrace trace(/*detailed=*/false);
  AddTwo(trace);
  trace.AddTime(7);
  EXPECT_TRUE(trace.events().empty());
  EXPECT_EQ(trace.ns(), 32);
}

}  // namespace
}  // namespace telegrad
