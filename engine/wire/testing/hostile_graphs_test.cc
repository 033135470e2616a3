// Each hostile graph is refused with its code and place, and budgets bound the work of
// admission.
#include "engine/wire/testing/hostile_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/wire/graph_codec.h"

namespace telegrad::testing {
namespace {

TEST(HostileGraphs, AreRefusedWithTheirCodeAndPlace) {
  for (const HostileGraph& hostile : HostileGraphs()) {
    SCOPED_TRACE(hostile.name);
    Budget budget;
    const absl::Status status = FromProto(hostile.graph, &budget).status();
    EXPECT_EQ(status.code(), hostile.code) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(hostile.message));
  }
}

TEST(HostileGraphs, ADeepChainIsAdmitted) {
  constexpr int kNodes = 1'000'000;
  const v1::Graph proto = DeepChain(kNodes);
  ASSERT_EQ(proto.nodes_size(), kNodes);
  Budget budget;
  const auto graph = FromProto(proto, &budget);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->graph->size(), kNodes);
  v1::Graph back;
  ToProto(graph->root(), &back);
  // The chain is in canonical order already except for the output's param, which is the store's
  // first source.
  EXPECT_EQ(back.nodes_size(), kNodes);
}

TEST(HostileGraphs, TheBudgetBoundsAdmission) {
  Budget::Limits limits;
  limits.nodes = 100;
  Budget budget(limits);
  EXPECT_EQ(FromProto(DeepChain(1000), &budget).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Cutting the bytes of a good graph anywhere gives a graph or an error, never worse.
TEST(HostileGraphs, TruncatedBytes) {
  const std::string bytes = DeepChain(40).SerializeAsString();
  int admitted = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    v1::Graph proto;
    if (!proto.ParseFromString(bytes.substr(0, n))) continue;
    Budget budget;
    admitted += FromProto(proto, &budget).ok();
  }
  EXPECT_EQ(admitted, 0);
}

}  // namespace
}  // namespace telegrad::testing
