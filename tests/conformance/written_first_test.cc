// No schedule of a model or captured graph reads a part of a temporary that it has not written
// before, so all of them can run in memory that others have used. Almost no schedule of a random
// graph does; those that do get zeroed memory.
#include "engine/execution/written_first.h"

#include <gtest/gtest.h>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/random_graph.h"
#include "tests/models/models.h"
#include "tests/tinygrad/for_each_capture.h"

namespace telegrad {
namespace {

Schedule Scheduled(UOp sink, std::span<const VarValue> variables, std::string_view name) {
  Budget budget;
  auto schedule = ScheduleGraph(sink, variables, &budget);
  EXPECT_TRUE(schedule.ok()) << name << ": " << schedule.status();
  return schedule.ok() ? *std::move(schedule) : Schedule();
}

// The temporaries of the graph.
size_t Expect(UOp sink, std::span<const VarValue> variables, std::string_view name) {
  const Schedule schedule = Scheduled(sink, variables, name);
  EXPECT_TRUE(WritesTemporariesFirst(schedule)) << name;
  return schedule.temporaries.size();
}

TEST(WrittenFirst, Models) {
  size_t temporaries = 0;
  for (const testing::NamedModel& model : testing::kModels) {
    const auto plan = model.plan();
    ASSERT_TRUE(plan.ok()) << plan.status();
    temporaries += Expect(plan->graph.root(), {}, model.name);
  }
  EXPECT_GT(temporaries, 100u);
}

TEST(WrittenFirst, GraphsOfTinygrad) {
  size_t temporaries = 0;
  testing::ForEachCapture([&](const testing::Capture& capture, const FrozenGraph& graph,
                              std::span<const VarValue> variables) {
    temporaries += Expect(graph.root(), variables, capture.name);
  });
  EXPECT_GT(temporaries, 400u);
}

TEST(WrittenFirst, RandomGraphs) {
  int with_temporaries = 0, unproved = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Graph graph;
    std::mt19937_64 rng(seed);
    const testing::RandomGraph random = testing::MakeRandomGraph(
        rng, 6 + static_cast<int>(seed % 30), &graph, testing::Vocabulary::kAll);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    const auto variables = testing::VariablesOf(random.sink, random.variables);
    const Schedule schedule = Scheduled(random.sink, variables, "seed " + std::to_string(seed));
    with_temporaries += !schedule.temporaries.empty();
    unproved += !WritesTemporariesFirst(schedule);
  }
  EXPECT_GT(with_temporaries, 80);
  EXPECT_LE(unproved, with_temporaries / 10);
}

}  // namespace
}  // namespace telegrad
