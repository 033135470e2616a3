// Which values are computed again a few rows at a time, and which sums are exchanged.
#include "engine/schedule/recompute.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/schedule/exchange_sums.h"

namespace telegrad {
namespace {

using LineEdits = std::vector<std::pair<std::string, std::string>>;

FrozenGraph Edited(std::string text, const LineEdits& edits) {
  for (const auto& [line, to] : edits) {
    const size_t at = text.find(line + "\n");
    EXPECT_NE(at, std::string::npos) << line;
    if (at != std::string::npos) text.replace(at, line.size(), to);
  }
  auto graph = std::make_shared<Graph>();
  const absl::StatusOr<UOp> root = Parse(text, graph.get());
  EXPECT_TRUE(root.ok()) << root.status() << text;
  return {graph, root->id()};
}

// Scores %5 of 2 times 64 by 64, of 16 terms, weighted sums of them along both of their axes.
constexpr std::string_view kSums = R"(%0 = param f32 [2, 64, 1, 16] slot=0
%1 = param f32 [2, 1, 64, 16] slot=1
%2 = expand f32 [2, 64, 64, 16] %0
%3 = expand f32 [2, 64, 64, 16] %1
%4 = mul f32 [2, 64, 64, 16] %2 %3
%5 = reduce f32 [2, 64, 64, 1] %4 kind=add axes=[3]
%6 = exp2 f32 [2, 64, 64, 1] %5
%7 = expand f32 [2, 64, 64, 16] %6
%8 = mul f32 [2, 64, 64, 16] %7 %3
%9 = reduce f32 [2, 64, 1, 16] %8 kind=add axes=[2]
%10 = mul f32 [2, 64, 64, 16] %7 %2
%11 = reduce f32 [2, 1, 64, 16] %10 kind=add axes=[1]
%12 = param f32 [2, 64, 1, 16] slot=2
%13 = store %12 %9
%14 = param f32 [2, 1, 64, 16] slot=3
%15 = store %14 %11
%16 = sink %13 %15
)";

size_t RowsOfSums(const LineEdits& edits, ScheduleCosts costs = CostsOf(CostRow::kGeneral).schedule,
                  int64_t private_bytes = 1 << 20) {
  Budget budget;
  const absl::StatusOr<RecomputedRows> rows =
      RecomputeRows(Edited(std::string(kSums), edits), costs, private_bytes, true,
                    RowStatistics::kWithResult, &budget);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows->rows.size();
}

TEST(RecomputeRows, AreThoseThatSeveralKernelsReduce) { EXPECT_EQ(RowsOfSums({}), 2u); }

TEST(RecomputeRows, AreNotThoseThatAreStoredOrComparedOrReducedOnce) {
  const std::string sink = "%16 = sink %13 %15";
  // Another user, and a view that leaves elements out.
  EXPECT_EQ(RowsOfSums({{sink,
                         "%20 = param f32 [2, 64, 64, 1] slot=4\n%21 = store %20 %6\n"
                         "%16 = sink %13 %15 %21"}}),
            0u);
  EXPECT_EQ(RowsOfSums({{sink,
                         "%20 = shrink f32 [2, 64, 1, 1] %6 pairs=[0, 2, 0, 64, 0, 1, 0, 1]\n"
                         "%22 = param f32 [2, 64, 1, 1] slot=4\n%21 = store %22 %20\n"
                         "%16 = sink %13 %15 %21"}}),
            0u);
  // The greater of both, of which one is compared with the other's elements.
  EXPECT_EQ(RowsOfSums({{"%6 = exp2 f32 [2, 64, 64, 1] %5",
                         "%20 = reduce f32 [2, 64, 1, 1] %5 kind=max axes=[2]\n"
                         "%21 = expand f32 [2, 64, 64, 1] %20\n"
                         "%22 = cmpeq bool [2, 64, 64, 1] %5 %21\n"
                         "%6 = where f32 [2, 64, 64, 1] %22 %5 %21"}}),
            0u);
  // Both factors are scores.
  EXPECT_EQ(
      RowsOfSums({{"%10 = mul f32 [2, 64, 64, 16] %7 %2", "%10 = mul f32 [2, 64, 64, 16] %7 %7"}}),
      0u);
}

TEST(RecomputeRows, FollowCosts) {
  ScheduleCosts costs = CostsOf(CostRow::kGeneral).schedule;
  costs.rows_byte = 4;
  EXPECT_EQ(RowsOfSums({}, costs), 0u);
  costs.rows_byte = 5;
  EXPECT_EQ(RowsOfSums({}, costs), 2u);
  EXPECT_EQ(RowsOfSums({}, costs, 1024), 0u);
}

// D = %10, the sum over j of a(i, j) (sum over d of g(i, d) v(j, d)), and y = %13.
constexpr std::string_view kNested = R"(%0 = param f32 [64, 64, 1] slot=0
%1 = param f32 [1, 64, 16] slot=1
%2 = param f32 [64, 1, 16] slot=2
%3 = expand f32 [64, 64, 16] %1
%11 = expand f32 [64, 64, 16] %0
%12 = mul f32 [64, 64, 16] %11 %3
%13 = reduce f32 [64, 1, 16] %12 kind=add axes=[1]
%4 = expand f32 [64, 64, 16] %2
%5 = mul f32 [64, 64, 16] %4 %3
%6 = reduce f32 [64, 64, 1] %5 kind=add axes=[2]
%7 = mul f32 [64, 64, 1] %6 %0
%8 = neg f32 [64, 64, 1] %7
%10 = reduce f32 [64, 1, 1] %8 kind=add axes=[1]
%14 = param f32 [64, 1, 16] slot=3
%15 = store %14 %13
%16 = param f32 [64, 1, 1] slot=4
%17 = store %16 %10
%18 = sink %15 %17
)";

// Sums over all triples of i, j and d that are left.
int TriplesOf(const LineEdits& edits) {
  Budget budget;
  const absl::StatusOr<FrozenGraph> graph =
      ExchangeSums(Edited(std::string(kNested), edits), &budget);
  EXPECT_TRUE(graph.ok()) << graph.status();
  int triples = 0;
  for (const uint32_t id : PostOrder(graph->root())) {
    const UOp u = graph->graph->at(id);
    triples += u.is(Op::kReduce) && NumElements(u.src(0).shape()) == 64 * 64 * 16 ? 1 : 0;
  }
  return triples;
}

TEST(ExchangeSums, UsesTheSumThatTheGraphHas) {
  EXPECT_EQ(TriplesOf({}), 1);
  // Both times a factor of i, which may differ.
  EXPECT_EQ(TriplesOf({{"%8 = neg f32 [64, 64, 1] %7",
                        "%20 = param f32 [64, 1, 1] slot=5\n%21 = expand f32 [64, 64, 1] %20\n"
                        "%8 = fdiv f32 [64, 64, 1] %7 %21"}}),
            1);
}

// By what y alone is multiplied the sum would be divided: a constant may be that, what a run may
// make 0 may not.
TEST(ExchangeSums, DividesByConstantsOnly) {
  const std::string mul = "%12 = mul f32 [64, 64, 16] %11 %3";
  const auto times = [&](const std::string& factor) {
    return LineEdits{{mul, factor + "\n%21 = expand f32 [64, 64, 16] %20\n" +
                               "%22 = mul f32 [64, 64, 16] %11 %21\n" +
                               "%12 = mul f32 [64, 64, 16] %22 %3"}};
  };
  EXPECT_EQ(TriplesOf(times("%23 = const f32 0.5\n%20 = reshape f32 [1, 1, 1] %23")), 1);
  EXPECT_EQ(TriplesOf(times("%23 = const f32 1e-30\n%20 = reshape f32 [1, 1, 1] %23")), 2);
  EXPECT_EQ(TriplesOf(times("%20 = param f32 [64, 1, 1] slot=5")), 2);
}

// Or by the sum of a row's exponentials less its maximum, but not less those of other rows.
TEST(ExchangeSums, DividesBySumsThatHaveATermOfOne) {
  const auto divided = [](const std::string& maxima, const std::string& sign = "") {
    return LineEdits{{"%12 = mul f32 [64, 64, 16] %11 %3",
                      "%23 = param f32 [64, 64, 1] slot=5\n"
                      "%24 = reduce f32 [64, 1, 1] %23 kind=max axes=[1]\n" +
                          maxima +
                          "\n%26 = sub f32 [64, 64, 1] %23 %25\n"
                          "%31 = const f32 " +
                          sign +
                          "1.5\n%30 = mul f32 [64, 64, 1] %26 %31\n"
                          "%27 = exp2 f32 [64, 64, 1] %30\n"
                          "%20 = reduce f32 [64, 1, 1] %27 kind=add axes=[1]\n"
                          "%21 = expand f32 [64, 64, 16] %20\n"
                          "%22 = fdiv f32 [64, 64, 16] %11 %21\n"
                          "%12 = mul f32 [64, 64, 16] %22 %3"}};
  };
  const std::string own = "%25 = expand f32 [64, 64, 1] %24";
  EXPECT_EQ(TriplesOf(divided(own)), 1);
  EXPECT_EQ(TriplesOf(divided("%28 = reshape f32 [64, 1] %24\n%29 = reshape f32 [64, 1, 1] %28\n"
                              "%25 = expand f32 [64, 64, 1] %29")),
            1);
  EXPECT_EQ(TriplesOf(divided(own, "-")), 2);
  EXPECT_EQ(TriplesOf(divided("%28 = reshape f32 [1, 64, 1] %24\n"
                              "%25 = expand f32 [64, 64, 1] %28")),
            2);
}

TEST(ExchangeSums, LeavesOthersAsTheyAre) {
  const std::string mul = "%12 = mul f32 [64, 64, 16] %11 %3";
  // Other values, weights, and axes; a factor of j; the largest term.
  EXPECT_EQ(TriplesOf({{mul,
                        "%20 = param f32 [1, 64, 16] slot=5\n%21 = expand f32 [64, 64, 16] %20\n"
                        "%12 = mul f32 [64, 64, 16] %11 %21"}}),
            2);
  EXPECT_EQ(TriplesOf({{"%7 = mul f32 [64, 64, 1] %6 %0",
                        "%20 = param f32 [64, 64, 1] slot=5\n%7 = mul f32 [64, 64, 1] %6 %20"}}),
            2);
  EXPECT_EQ(TriplesOf({{"%8 = neg f32 [64, 64, 1] %7",
                        "%20 = param f32 [1, 64, 1] slot=5\n%21 = expand f32 [64, 64, 1] %20\n"
                        "%8 = mul f32 [64, 64, 1] %7 %21"}}),
            2);
  EXPECT_EQ(TriplesOf({{"%10 = reduce f32 [64, 1, 1] %8 kind=add axes=[1]",
                        "%10 = reduce f32 [64, 1, 1] %8 kind=max axes=[1]"}}),
            2);
  EXPECT_EQ(TriplesOf({{"%10 = reduce f32 [64, 1, 1] %8 kind=add axes=[1]",
                        "%20 = reduce f32 [1, 64, 1] %8 kind=add axes=[0]\n"
                        "%10 = reshape f32 [64, 1, 1] %20"}}),
            2);
}

}  // namespace
}  // namespace telegrad
