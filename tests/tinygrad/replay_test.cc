// Graphs of real tinygrad programs against the values that tinygrad's own CPU backend computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "engine/ir/content_hash.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/collapse.h"
#include "engine/schedule/legalize.h"
#include "engine/wire/graph_codec.h"
#include "tests/tinygrad/captures.h"

namespace telegrad {
namespace {

using ::telegrad::testing::Capture;
using ::telegrad::testing::Difference;
using ::telegrad::testing::ReadCaptures;

constexpr int kLeastGraphs = 200;
constexpr int kLeastCollapsed = 150;

const std::vector<Capture>& Captures() {
  static const auto* captures = [] {
    auto read = ReadCaptures();
    if (!read.ok()) std::cerr << read.status() << "\n";
    return new std::vector<Capture>(read.ok() ? *std::move(read) : std::vector<Capture>());
  }();
  return *captures;
}

FrozenGraph Admit(const Capture& capture) {
  Budget budget;
  auto graph = FromProto(capture.graph, &budget);
  EXPECT_TRUE(graph.ok()) << capture.name << ": " << graph.status();
  return graph.ok() ? *std::move(graph) : FrozenGraph();
}

int Reductions(UOp root) {
  const std::vector<uint32_t> order = PostOrder(root);
  return static_cast<int>(std::ranges::count_if(
      order, [&](uint32_t id) { return root.graph()->op(id) == Op::kReduce; }));
}

TEST(Replay, Coverage) {
  std::map<std::string_view, int> ops;
  std::set<std::string> contents;
  int64_t nodes = 0;
  for (const Capture& capture : Captures()) {
    const FrozenGraph graph = Admit(capture);
    if (graph.graph == nullptr) continue;
    contents.insert(CanonicalBytes(graph.root()));
    for (uint32_t id : PostOrder(graph.root())) {
      ++ops[Name(graph.root().graph()->op(id))];
      ++nodes;
    }
  }
  std::cout << contents.size() << " distinct graphs, " << nodes << " nodes, " << ops.size()
            << " ops:";
  for (const auto& [op, count] : ops) std::cout << " " << op << "=" << count;
  std::cout << "\n";
  EXPECT_GE(static_cast<int>(contents.size()), kLeastGraphs);
  EXPECT_EQ(contents.size(), Captures().size()) << "a graph was captured twice";
}

TEST(Replay, SurvivesTextAndWire) {
  for (const Capture& capture : Captures()) {
    const FrozenGraph graph = Admit(capture);
    if (graph.graph == nullptr) continue;
    v1::Graph sent;
    ToProto(graph.root(), &sent);
    Budget budget;
    const auto received = FromProto(sent, &budget);
    ASSERT_TRUE(received.ok()) << capture.name << ": " << received.status();
    EXPECT_EQ(ContentHash(received->root()), ContentHash(graph.root())) << capture.name;
    Graph copy;
    const UOp root = CopyLive(graph.root(), &copy);
    const std::string text = Print(graph.root());
    const auto parsed = Parse(text, &copy);
    ASSERT_TRUE(parsed.ok()) << capture.name << ": " << parsed.status();
    EXPECT_EQ(parsed->id(), root.id()) << capture.name;
    Graph fresh;
    const auto alone = Parse(text, &fresh);
    ASSERT_TRUE(alone.ok()) << capture.name << ": " << alone.status();
    EXPECT_EQ(ContentHash(*alone), ContentHash(graph.root())) << capture.name;
  }
}

TEST(Replay, ReferenceAgrees) {
  for (const Capture& capture : Captures()) {
    const FrozenGraph graph = Admit(capture);
    if (graph.graph == nullptr) continue;
    std::vector<std::vector<uint8_t>> slots = capture.SlotsBefore();
    reference::Variables variables;
    for (size_t i = 0; i < capture.variables.size(); ++i) variables[i] = capture.variables[i];
    Budget budget;
    const absl::Status status = reference::Evaluate(graph.root(), slots, &budget, variables);
    EXPECT_TRUE(status.ok()) << capture.name << ": " << status;
    if (!status.ok()) continue;
    EXPECT_EQ(Difference(capture, graph.root(), slots), "") << capture.name;
  }
}

// Where one float is added up several times, the collapsed graph rounds less often.
constexpr std::string_view kAddsEqualFloats[] = {"indexing/triangle_of_rows",
                                                 "indexing/sum_of_expanded", "movement/expand",
                                                 "movement/expand_leading"};

TEST(Replay, CollapsedReductionsLeaveTheSameBits) {
  int fewer = 0;
  for (const Capture& capture : Captures()) {
    const FrozenGraph graph = Admit(capture);
    if (graph.graph == nullptr) continue;
    const std::vector<VarValue> variables = capture.VarValues();
    Budget budget;
    const auto legal = Legalize(graph.root(), variables, &budget);
    ASSERT_TRUE(legal.ok()) << capture.name << ": " << legal.status();
    const auto collapsed = CollapseReductions(legal->root(), &budget);
    ASSERT_TRUE(collapsed.ok()) << capture.name << ": " << collapsed.status();
    EXPECT_TRUE(Verify(collapsed->root(), kTensorLevel).ok()) << capture.name;
    fewer += Reductions(collapsed->root()) < Reductions(legal->root());
    std::vector<std::vector<uint8_t>> want = capture.SlotsBefore(), got = want;
    ASSERT_TRUE(reference::Evaluate(legal->root(), want, &budget).ok()) << capture.name;
    const absl::Status status = reference::Evaluate(collapsed->root(), got, &budget);
    EXPECT_TRUE(status.ok()) << capture.name << ": " << status;
    if (std::ranges::find(kAddsEqualFloats, capture.name) != std::end(kAddsEqualFloats)) {
      EXPECT_EQ(Difference(capture, graph.root(), got), "") << capture.name;
    } else {
      EXPECT_TRUE(want == got) << capture.name;
    }
  }
  std::cout << fewer << " graphs have fewer reductions\n";
  EXPECT_GE(fewer, kLeastCollapsed);
}

}  // namespace
}  // namespace telegrad
