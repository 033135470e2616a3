// Random graphs three ways: evaluated node by node (the judge), scheduled and lowered and
// interpreted for two vector widths and for workgroups, and compiled and run on the CPU device,
// with indices of 64 and of 32 bits. All must agree. A graph where they do not is made small before
// it is printed.
#include <gtest/gtest.h>

#include <set>

#include "engine/ir/text.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/minimize.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

constexpr uint64_t kCases = 300;

class Differential : public ::testing::TestWithParam<int> {};

TEST_P(Differential, LoweredProgramsAgreeWithTheTensorEvaluator) {
  EXPECT_EQ("", testing::CompareMany(
                    [](UOp sink, std::span<const VarValue> variables, Slots* slots) {
                      return testing::RunLowered(sink, GetParam(), variables, slots);
                    },
                    kCases));
}

INSTANTIATE_TEST_SUITE_P(Widths, Differential, ::testing::Values(16, 64));

TEST(DifferentialDevice, CompiledProgramsAgreeWithTheTensorEvaluator) {
  auto cpu = testing::CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ("",
            testing::CompareMany([&](UOp sink, std::span<const VarValue> variables,
                                     Slots* slots) { return (*cpu)->Run(sink, variables, slots); },
                                 kCases));
}

// A processor has no use for them, but its renderer accepts both widths.
TEST(DifferentialDevice, CompiledProgramsWithIndicesOf32BitsAgree) {
  Target target = HostTarget(0);
  target.index_bits = 32;
  auto cpu = testing::CpuRunner::Open({}, target);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ("",
            testing::CompareMany([&](UOp sink, std::span<const VarValue> variables,
                                     Slots* slots) { return (*cpu)->Run(sink, variables, slots); },
                                 kCases / 3));
}

TEST(DifferentialWorkgroups, ProgramsWithIndicesOfEitherWidthAgree) {
  for (const int bits : {32, 64}) {
    Target target = OpenClTarget(4);
    target.index_bits = bits;
    EXPECT_EQ("", testing::CompareMany(
                      [&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
                        return testing::RunLowered(sink, target, variables, slots);
                      },
                      kCases));
  }
}

// The tests above, with their default seeds, run every op and every dtype of the tensor level.
TEST(RandomGraphs, HaveEveryOpAndDType) {
  std::set<Op> ops;
  std::set<DType> dtypes;
  int made = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Graph graph;
    const RandomGraph random = testing::GraphOfSeed(seed, &graph);
    if (!random.sink.valid()) continue;
    ++made;
    for (const uint32_t id : PostOrder(random.sink)) {
      ops.insert(graph.op(id));
      dtypes.insert(graph.dtype(id));
    }
  }
  EXPECT_GT(made, 270);
  for (const OpInfo& op : AllOps()) {
    EXPECT_TRUE(!IsAt(op.op, kTensorLevel) || ops.contains(op.op)) << op.name;
  }
  for (const DTypeInfo& row : AllDTypes()) EXPECT_TRUE(dtypes.contains(row.dtype)) << row.text;
}

// A rule with a mistake: max(x, y) is x. Which random graph shows it, and how many nodes it takes
// to show it, is the minimizer's work.
TEST(Minimizer, FindsThePlantedMistake) {
  const testing::Way wrong = [](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    auto graph = std::make_shared<Graph>();
    NodeMap<UOp> made(*sink.graph());
    std::vector<UOp> src;
    for (const uint32_t id : PostOrder(sink)) {
      const UOp u = sink.graph()->at(id);
      src.clear();
      for (const uint32_t s : u.src_ids()) src.push_back(made[s]);
      made[u] = u.is(Op::kMax) && SameShape(src[0], u)
                    ? src[0]
                    : graph->Make(u.op(), u.dtype(), src, u.arg());
    }
    if (!made[sink].valid()) return graph->status();
    const RandomGraph other{.sink = made[sink],
                            .slots = {},
                            .dtypes = {},
                            .exact = {},
                            .variables = {variables.begin(), variables.end()}};
    return testing::Judge(other, slots);
  };
  int found = 0;
  for (uint64_t seed = 1; seed <= 400 && found < 5; ++seed) {
    Graph graph;
    const RandomGraph random = testing::GraphOfSeed(seed, &graph);
    if (!random.sink.valid() || testing::Compare(random, wrong).empty()) continue;
    ++found;
    const auto fails = [&](const RandomGraph& r) { return !testing::Compare(r, wrong).empty(); };
    const testing::Failure small = testing::Minimize(random, fails);
    const std::vector<uint32_t> order = PostOrder(small.random.sink);
    EXPECT_TRUE(fails(small.random));
    // Two inputs, the max, an output, its store, the sink; and what links them, a body at most.
    EXPECT_LE(order.size(), 14u) << "seed " << seed << "\n" << Print(small.random.sink);
    EXPECT_TRUE(std::ranges::any_of(order, [&](uint32_t id) {
      return small.graph.graph->op(id) == Op::kMax;
    })) << Print(small.random.sink);
  }
  EXPECT_GE(found, 3);
}

}  // namespace
}  // namespace telegrad
