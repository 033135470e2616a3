// Trace headers, valid by W3C Trace Context and invalid ones; sampling; and the timeline.
#include "server/admin/tracer.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/trace_events.h"

namespace telegrad {
namespace {

constexpr std::string_view kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traceparent, IsReadAsTheStandardSays) {
  const auto context = ParseTraceparent(kGood);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->high, 0x4bf92f3577b34da6u);
  EXPECT_EQ(context->low, 0xa3ce929d0e0e4736u);
  EXPECT_EQ(context->parent, 0x00f067aa0ba902b7u);
  EXPECT_TRUE(context->sampled);
  std::string text(kGood);
  text.back() = '0';
  EXPECT_FALSE(ParseTraceparent(text)->sampled);
  text[0] = text[1] = 'c';
  EXPECT_TRUE(ParseTraceparent(text + "-what comes later"));
}

TEST(Traceparent, GarbageIsIgnored) {
  for (size_t i = 0; i < kGood.size(); ++i) {
    for (const char c : {'G', 'g', ' ', '\0', 'A', '\xff'}) {
      std::string text(kGood);
      text[i] = c;
      EXPECT_FALSE(ParseTraceparent(text)) << text;
    }
    EXPECT_FALSE(ParseTraceparent(kGood.substr(0, i))) << i;
  }
  for (const char* wrong : {"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more"}) {
    EXPECT_FALSE(ParseTraceparent(wrong)) << wrong;
  }
}

TEST(Tracer, TakesWhatIsMarkedAndASampleOfTheRest) {
  Tracer tracer(10, 3);
  int taken = 0;
  std::set<uint64_t> traces;
  for (int i = 0; i < 30; ++i) {
    if (const auto context = tracer.Begin(std::nullopt)) {
      ++taken;
      traces.insert(context->low);
    }
  }
  EXPECT_EQ(taken, 10);
  EXPECT_EQ(traces.size(), 10u);
  auto context = *ParseTraceparent(kGood);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(tracer.Begin(context)->low, context.low);
  context.sampled = false;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(tracer.Begin(context));
  EXPECT_FALSE(Tracer(10, 0).Begin(std::nullopt));
}

TEST(Tracer, IsATimelineOfTheLastSpans) {
  fakes::ManualClock clock;
  Tracer tracer(3, 1, &clock);
  for (uint64_t op = 1; op <= 2; ++op) {
    OperationTrace trace(&tracer, *ParseTraceparent(kGood), "run", "al\"ice", 7, op);
    const int64_t begin = trace.begin_ns();
    clock.Advance(5'000'000);
    trace.Add("queue", begin, begin + 2'000'000);
    trace.End();
    trace.End();  // counts once
  }
  const std::string json = tracer.ChromeJson();
  const auto events = testing::ParseTimeline(json);
  ASSERT_EQ(events.size(), 3u) << json;
  EXPECT_EQ(events[0].name, "run");
  EXPECT_EQ(events[1].name, "queue");
  EXPECT_EQ(events[1].thread, "session 7 operation 2");
  EXPECT_DOUBLE_EQ(events[1].end - events[1].begin, 2000);
  EXPECT_DOUBLE_EQ(events[2].end - events[2].begin, 5000);
  const auto text = [](const testing::CompleteEvent& event, const char* key) {
    return testing::String(event.args, key);
  };
  EXPECT_EQ(text(events[2], "trace"), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(text(events[2], "parent"), "00f067aa0ba902b7");
  EXPECT_EQ(text(events[1], "parent"), text(events[2], "span")) << "a child of it";
  EXPECT_EQ(text(events[2], "tenant"), "al\"ice");
  EXPECT_EQ(testing::Number(testing::At(testing::ParseJson(json), "otherData").struct_value(),
                            "dropped_spans"),
            1);
}

// A tenant that has each of its operations traced displaces its own spans, not those of others.
TEST(Tracer, KeepsSpansOfEachTenant) {
  fakes::ManualClock clock;
  Tracer tracer(100, 1, &clock);
  const auto add = [&](const char* tenant, int spans) {
    for (int i = 0; i < spans; ++i) {
      OperationTrace(&tracer, *ParseTraceparent(kGood), "run", tenant, 1, 1).End();
    }
  };
  const auto of = [&](std::string_view tenant) {
    const auto events = testing::ParseTimeline(tracer.ChromeJson());
    return std::ranges::count_if(
        events, [&](const auto& e) { return testing::String(e.args, "tenant") == tenant; });
  };
  add("quiet", 10);
  add("loud", 10'000);
  EXPECT_EQ(of("quiet"), 10);
  EXPECT_EQ(of("loud"), 90);
  add("other", 60);
  EXPECT_EQ(of("quiet"), 10);
  EXPECT_EQ(of("loud"), 45);
  EXPECT_EQ(of("other"), 45);
}

}  // namespace
}  // namespace telegrad
