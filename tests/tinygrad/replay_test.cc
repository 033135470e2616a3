// Graphs of real tinygrad programs against the values that tinygrad's own CPU backend computed.
//
// Integers and bools must be equal. A float may differ by a tolerance that the coarsest float type
// among the graph's nodes decides: tinygrad's CPU backend computes narrow types in f32 and rounds
// only what it stores, where each op of ours rounds once, so one narrow value on the way is enough.
// The tolerance is relative to the element, or to an eighth of the largest element of its slot
// where that is more (sums cancel).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <set>

#include "engine/base/strings.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "engine/wire/graph_codec.h"
#include "tests/tinygrad/captures.h"

namespace telegrad {
namespace {

using ::telegrad::testing::Capture;
using ::telegrad::testing::ReadCaptures;

constexpr int kLeastGraphs = 200;

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

double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-9;
    case DType::kFloat32:
      return 1e-5;
    default:  // one and a half units in the last place
      return 1.5 * std::exp2(-Info(dtype).mantissa_bits);
  }
}

double Tolerance(const Graph& graph) {
  double tolerance = 0;
  for (uint32_t id = 0; id < graph.size(); ++id) {
    if (IsFloat(graph.dtype(id))) tolerance = std::max(tolerance, Tolerance(graph.dtype(id)));
  }
  return tolerance;
}

double Element(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * ByteSize(dtype), ByteSize(dtype));
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

// The first element that differs by more than it may, or "".
std::string Difference(DType dtype, double tolerance, const std::vector<uint8_t>& want,
                       const std::vector<uint8_t>& got) {
  if (!IsFloat(dtype)) return want == got ? "" : "integers differ";
  const int64_t n = static_cast<int64_t>(want.size()) / ByteSize(dtype);
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = std::abs(Element(dtype, want, i));
    if (std::isfinite(x)) largest = std::max(largest, x);
  }
  for (int64_t i = 0; i < n; ++i) {
    const double x = Element(dtype, want, i), y = Element(dtype, got, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (std::abs(x - y) <= tolerance * std::max(std::abs(x), largest / 8)) continue;
    return StrCat("element ", i, " of ", n, ": expected ", x, ", got ", y);
  }
  return "";
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
    std::vector<std::vector<uint8_t>> slots;
    for (const auto& slot : capture.slots) slots.push_back(slot.before);
    reference::Variables variables;
    for (size_t i = 0; i < capture.variables.size(); ++i) variables[i] = capture.variables[i];
    Budget budget;
    const absl::Status status = reference::Evaluate(graph.root(), slots, &budget, variables);
    EXPECT_TRUE(status.ok()) << capture.name << ": " << status;
    if (!status.ok()) continue;
    const double tolerance = Tolerance(*graph.root().graph());
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto& slot = capture.slots[i];
      EXPECT_EQ(Difference(slot.dtype, tolerance, slot.after ? *slot.after : slot.before, slots[i]),
                "")
          << capture.name << ", slot " << i;
    }
  }
}

}  // namespace
}  // namespace telegrad
