// Random graphs three ways: evaluated node by node (the judge), scheduled and lowered and
// interpreted for two vector widths, and compiled and run on the CPU device. All must agree. A
// graph where they do not is made small before it is printed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/minimize.h"
#include "tests/conformance/random_graph.h"
#include "tests/conformance/run_graph.h"

namespace telegrad {
namespace {

using testing::RandomGraph;
using testing::Slots;

uint64_t FirstSeed() {
  const char* seed = std::getenv("TELEGRAD_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
}
uint64_t Cases() {
  const char* cases = std::getenv("TELEGRAD_CASES");
  return cases != nullptr ? std::strtoull(cases, nullptr, 10) : 300;
}

// The graph of a seed; an invalid sink where it came out malformed.
RandomGraph Make(uint64_t seed, Graph* graph) {
  std::mt19937_64 rng(seed);
  const auto vocabulary = seed % 4 == 0 ? testing::Vocabulary::kPlain : testing::Vocabulary::kAll;
  RandomGraph random =
      testing::MakeRandomGraph(rng, 6 + static_cast<int>(seed % 30), graph, vocabulary);
  if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) random.sink = UOp();
  return random;
}

absl::Status Judge(const RandomGraph& random, Slots* slots) {
  reference::Variables variables;
  for (const VarValue& v : random.variables) variables[v.id] = v.value;
  Budget budget;
  return reference::Evaluate(random.sink, *slots, &budget, variables);
}

using Way = std::function<absl::Status(UOp sink, std::span<const VarValue>, Slots*)>;

// How a way of running a graph differs from the judge, or "".
std::string Compare(const RandomGraph& random, const Way& way) {
  Slots want = random.slots, got = random.slots;
  if (auto s = Judge(random, &want); !s.ok()) return StrCat("the judge: ", s.ToString());
  const std::vector<VarValue> variables = testing::VariablesOf(random.sink, random.variables);
  if (auto s = way(random.sink, variables, &got); !s.ok()) return s.ToString();
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string difference =
        testing::Difference(random.dtypes[i], random.exact[i], want[i], got[i]);
    if (!difference.empty()) return StrCat("slot ", i, ", ", difference);
  }
  return "";
}

// The two ways differ in whether there is a result, or in the result.
void Check(const Way& way) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + Cases(); ++seed) {
    Graph graph;
    const RandomGraph random = Make(seed, &graph);
    if (!random.sink.valid()) continue;
    const std::string difference = Compare(random, way);
    if (difference.empty()) continue;
    const testing::Failure small = testing::Minimize(random, [&](const RandomGraph& r) {
      const std::string d = Compare(r, way);
      return !d.empty() && d.starts_with("the judge") == difference.starts_with("the judge");
    });
    FAIL() << "seed " << seed << ": " << difference
           << "\nthe smallest graph that differs: " << Compare(small.random, way) << "\n"
           << Print(small.random.sink);
  }
}

class Differential : public ::testing::TestWithParam<int> {};

TEST_P(Differential, LoweredProgramsAgreeWithTheTensorEvaluator) {
  Check([](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    return testing::RunLowered(sink, GetParam(), variables, slots);
  });
}

INSTANTIATE_TEST_SUITE_P(Widths, Differential, ::testing::Values(16, 64));

TEST(DifferentialDevice, CompiledProgramsAgreeWithTheTensorEvaluator) {
  auto cpu = testing::CpuRunner::Open();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  Check([&](UOp sink, std::span<const VarValue> variables, Slots* slots) {
    return (*cpu)->Run(sink, variables, slots);
  });
}

// The tests above, with their default seeds, run every op and every dtype of the tensor level.
TEST(RandomGraphs, HaveEveryOpAndDType) {
  std::set<Op> ops;
  std::set<DType> dtypes;
  int made = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Graph graph;
    const RandomGraph random = Make(seed, &graph);
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
  const Way wrong = [](UOp sink, std::span<const VarValue> variables, Slots* slots) {
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
    return Judge(other, slots);
  };
  int found = 0;
  for (uint64_t seed = 1; seed <= 400 && found < 5; ++seed) {
    Graph graph;
    const RandomGraph random = Make(seed, &graph);
    if (!random.sink.valid() || Compare(random, wrong).empty()) continue;
    ++found;
    const auto fails = [&](const RandomGraph& r) { return !Compare(r, wrong).empty(); };
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
