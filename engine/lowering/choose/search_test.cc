// The search with clocks that are made up: what it returns is never slower than the heuristic's
// list by the clock that it is given, and it ends when it is told to.
#include "engine/lowering/choose/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "engine/lowering/choose/candidates.h"
#include "engine/lowering/lower.h"
#include "engine/lowering/test_product.h"

namespace telegrad {
namespace {

class MadeUpClock final : public Measure {
 public:
  using Time = std::function<absl::StatusOr<double>(const Program&)>;
  explicit MadeUpClock(Time time) : time_(std::move(time)) {}
  absl::StatusOr<double> Seconds(const Program& program, double, Budget*) override {
    ++measured;
    return time_(program);
  }
  int measured = 0;

 private:
  const Time time_;
};

SearchOptions Few() { return {.seconds = 3600, .most_measured = 150}; }

absl::StatusOr<SearchResult> SearchBy(MadeUpClock& clock, const SearchOptions& options = Few(),
                                      Budget* budget = nullptr) {
  Budget own;
  return SearchMoves(TestProduct(96, 96, 64), TestProcessor(), {}, clock, options,
                     budget == nullptr ? &own : budget);
}

// The clock likes lists that unroll the reduction by 4, which the heuristic's does not do.
TEST(Search, FindsWhatTheClockLikes) {
  const auto time = [](const Program& p) -> absl::StatusOr<double> {
    return p.moves.find("UNROLL r2 4") != std::string::npos ? 0.5 : 1.0;
  };
  MadeUpClock clock(time);
  const auto found = SearchBy(clock);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->improved());
  EXPECT_THAT(Print(found->best), ::testing::HasSubstr("UNROLL r2 4"));
  EXPECT_EQ(found->best_seconds, 0.5);
  EXPECT_EQ(found->heuristic_seconds, 1.0);
  EXPECT_EQ(found->measured, clock.measured);
}

TEST(Search, KeepsTheHeuristicsListWhereNothingIsFaster) {
  MadeUpClock clock([](const Program&) { return 1.0; });
  const auto found = SearchBy(clock);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->improved());
  EXPECT_GT(found->measured, 20);
}

// A list that seemed fast once, and is not when it is measured in turns with the heuristic's.
TEST(Search, ALuckyMeasurementIsNotBelieved) {
  std::map<std::string, int> seen;
  MadeUpClock clock([&](const Program& p) -> absl::StatusOr<double> {
    const bool first = seen[p.moves]++ == 0;
    return first && p.moves.find("UNROLL") != std::string::npos ? 0.1 : 1.0;
  });
  const auto found = SearchBy(clock);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->improved());
  EXPECT_EQ(found->best_seconds, found->heuristic_seconds);
}

TEST(Search, ProgramsThatFailAreLeftOut) {
  int n = 0;
  MadeUpClock clock([&](const Program& p) -> absl::StatusOr<double> {
    if (n++ > 0 && p.moves.find("UNROLL") == std::string::npos) {
      return absl::InternalError("does not compile");
    }
    return p.moves.find("UNROLL") != std::string::npos ? 0.5 : 1.0;
  });
  const auto found = SearchBy(clock);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_GT(found->refused, 0);
}

// The fastest programs are those of one thread, which other work would wait for.
TEST(Search, AProgramThatThreadsCannotShareIsNoChoice) {
  MadeUpClock clock([](const Program& p) { return p.iterations == 1 ? 0.1 : 1.0; });
  const auto found = SearchBy(clock);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->improved());
  EXPECT_GT(found->refused, 0);
}

TEST(Search, EndsAtItsLimits) {
  MadeUpClock clock([](const Program& p) { return 1.0 / static_cast<double>(p.moves.size()); });
  SearchOptions options = Few();
  options.most_measured = 10;
  const auto found = SearchBy(clock, options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LE(found->measured, 10 + 10);  // and five of each at the end
  options.seconds = 0;
  MadeUpClock late([](const Program&) { return 1.0; });
  const auto none = SearchBy(late, options);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->measured, 1);  // the heuristic's
}

TEST(Search, IsCancelled) {
  Budget budget;
  MadeUpClock clock([&](const Program&) {
    budget.Cancel();
    return 1.0;
  });
  const auto found = SearchBy(clock, Few(), &budget);
  EXPECT_TRUE(absl::IsCancelled(found.status())) << found.status();
  EXPECT_EQ(clock.measured, 1);
}

TEST(Search, SaysHowFarItIs) {
  MadeUpClock clock([](const Program& p) { return 1.0 / static_cast<double>(p.moves.size()); });
  SearchOptions options = Few();
  std::vector<double> best;
  options.progress = [&](const SearchProgress& p) { best.push_back(p.best_seconds); };
  ASSERT_TRUE(SearchBy(clock, options).ok());
  ASSERT_GT(best.size(), 1u);
  EXPECT_TRUE(std::ranges::is_sorted(best, std::greater<>()));
}

// The candidate of the least predicted cost is what lowering does without a search.
TEST(Candidates, TheFirstIsTheHeuristics) {
  for (const auto& [m, n, k] : {std::tuple(96, 96, 64), std::tuple(37, 131, 77)}) {
    const FrozenGraph kernel = TestProduct(m, n, k);
    const Target target = TestProcessor();
    Budget budget;
    auto space = MoveSpace::Open(kernel, target, {}, &budget);
    ASSERT_TRUE(space.ok()) << space.status();
    const std::vector<Candidate> all = FirstCandidates(*space, 8);
    ASSERT_EQ(all.size(), 8u);
    const auto program = Lower(kernel, target, "k", &budget);
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(Print(all[0].moves), program->moves);
    for (size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].cost, all[i].cost);
    const std::vector<Candidate> near = Neighbours(*space, all[0].moves);
    EXPECT_GE(near.size(), 10u);
    for (const Candidate& c : near) {
      EXPECT_TRUE(space->Add(c.moves).ok());
      EXPECT_NE(c.moves, all[0].moves);
    }
  }
}

}  // namespace
}  // namespace telegrad
