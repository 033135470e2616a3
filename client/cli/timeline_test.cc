// Timelines with times that are known, read back.
#include "client/cli/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/trace_events.h"

namespace telegrad::cli {
namespace {

using telegrad::testing::CompleteEvent;
using telegrad::testing::Number;
using telegrad::testing::ParseTimeline;

std::vector<CompleteEvent> OfCategory(const std::vector<CompleteEvent>& all,
                                      const std::string& category) {
  std::vector<CompleteEvent> out;
  for (const CompleteEvent& event : all) {
    if (event.category == category) out.push_back(event);
  }
  return out;
}

// A run of 100 us whose answer comes 500 us after it was asked for, 200 us of which went into
// compiling: the server began 100 us after the client.
TEST(Timeline, PlacesTheServerInTheMiddle) {
  Timeline timeline;
  timeline.Begin("import", 1'000'000);
  timeline.Begin("run", 1'300'000);
  auto trace = std::make_shared<RunEvents>();
  trace->end_ns = 100'000;
  trace->dropped = 3;
  trace->events = {
      {false, "k_one", "CPU:0 compute", 1'000, 40'000, 80'000, 4'000, {"why \"this\"", "and that"}},
      {true, "copy", "CPU:0 copy", 2'500, 50'000, 0, 64, {}},
      {false, "k_two", "CPU:0 compute", 41'000, 0, 1, 2, {}},
  };
  timeline.AddRun(
      {.cached = false, .kernels = 2, .device_ns = 100'000, .compile_ns = 200'000, .trace = trace},
      1'800'000);
  timeline.Begin("read", 1'900'000);
  timeline.End(2'000'000);

  const std::string json = timeline.ToJson();
  EXPECT_EQ(
      Number(testing::At(testing::ParseJson(json), "otherData").struct_value(), "dropped_events"),
      3);
  const std::vector<CompleteEvent> all = ParseTimeline(json);
  const std::vector<CompleteEvent> phases = OfCategory(all, "phase");
  ASSERT_EQ(phases.size(), 5u);
  const auto expect = [](const CompleteEvent& e, const char* process, const char* name,
                         double begin, double end) {
    EXPECT_EQ(e.process, process);
    EXPECT_EQ(e.name, name);
    EXPECT_DOUBLE_EQ(e.begin, begin) << name;
    EXPECT_NEAR(e.end, end, 1e-6) << name;
  };
  expect(phases[0], "telegrad", "import", 0, 300);
  expect(phases[1], "telegrad", "run", 300, 900);
  expect(phases[2], "telegrad", "read", 900, 1000);
  expect(phases[3], "telegradd", "compile", 400, 600);
  expect(phases[4], "telegradd", "run", 600, 700);

  const std::vector<CompleteEvent> launches = OfCategory(all, "launch");
  ASSERT_EQ(launches.size(), 2u);
  expect(launches[0], "telegradd", "k_one", 601, 641);
  expect(launches[1], "telegradd", "k_two", 641, 641);
  EXPECT_EQ(launches[0].thread, "CPU:0 compute");
  EXPECT_EQ(Number(launches[0].args, "flops"), 80'000);
  EXPECT_EQ(Number(launches[0].args, "bytes"), 4'000);
  EXPECT_EQ(Number(launches[0].args, "Gflop/s"), 2);
  const auto& reasons = testing::At(launches[0].args, "reasons").list_value().values();
  ASSERT_EQ(reasons.size(), 2);
  EXPECT_EQ(reasons[0].string_value(), "why \"this\"");
  const std::vector<CompleteEvent> copies = OfCategory(all, "copy");
  ASSERT_EQ(copies.size(), 1u);
  expect(copies[0], "telegradd", "copy", 602.5, 652.5);
  EXPECT_EQ(copies[0].thread, "CPU:0 copy");
}

// A server that claims to have taken longer than the answer did: nothing lies before its cause.
TEST(Timeline, ServerSlowerThanItsAnswer) {
  Timeline timeline;
  timeline.Begin("run", 1'000);
  auto trace = std::make_shared<RunEvents>();
  trace->end_ns = 900'000;
  timeline.AddRun({.compile_ns = 0, .trace = trace}, 500'000);
  timeline.End(500'000);
  const std::vector<CompleteEvent> all = ParseTimeline(timeline.ToJson());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].name, "run");
  EXPECT_EQ(all[1].begin, 0);
}

TEST(Timeline, WithoutAnything) { EXPECT_TRUE(ParseTimeline(Timeline().ToJson()).empty()); }

}  // namespace
}  // namespace telegrad::cli
