// Who is served how much, by counts: nothing here reads a clock.
#include "engine/base/deficit_round_robin.h"

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

using Flow = DeficitRoundRobin::Flow;

std::unique_ptr<Flow> NewFlow(int64_t weight) {
  return std::make_unique<Flow>(std::make_shared<Share>("t", weight));
}

// Serves flows that never run out of work until `total` is spent; what each got.
std::vector<double> Serve(const std::vector<int64_t>& weights, const std::vector<double>& predicted,
                          const std::vector<double>& measured, double total) {
  DeficitRoundRobin drr;
  std::vector<std::unique_ptr<Flow>> flows;
  std::map<const Flow*, size_t> index;
  for (const int64_t weight : weights) {
    flows.push_back(NewFlow(weight));
    index[flows.back().get()] = flows.size() - 1;
    drr.SetWaiting(flows.back().get(), true);
  }
  std::vector<double> got(weights.size(), 0);
  for (double spent = 0; spent < total;) {
    Flow* const flow = drr.Next();
    const size_t i = index.at(flow);
    drr.Charge(flow, predicted[i]);
    drr.Correct(flow, predicted[i], measured[i]);
    got[i] += measured[i];
    spent += measured[i];
  }
  return got;
}

TEST(DeficitRoundRobin, SharesAreAsTheWeightsForTinyAndLongWork) {
  const double kTotal = 10e9;
  for (const double cost : {1e5, 5e6, 5e7}) {
    const auto got = Serve({1, 3}, {cost, cost}, {cost, cost}, kTotal);
    EXPECT_NEAR(got[0] / kTotal, 0.25, 0.0075) << cost;
  }
  // Different kinds of work, and predictions that are wrong in both directions.
  const auto mixed = Serve({1, 3}, {5e6, 1e5}, {1e5, 5e6}, kTotal);
  EXPECT_NEAR(mixed[0] / kTotal, 0.25, 0.0075);
}

TEST(DeficitRoundRobin, TenTenantsOfRandomWeightsAndCosts) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<int64_t> weights;
  std::vector<double> predicted, measured;
  int64_t sum = 0;
  for (int i = 0; i < 10; ++i) {
    weights.push_back(1 + static_cast<int64_t>(random() % 9));
    predicted.push_back(1e3 + static_cast<double>(random() % 5'000'000));
    measured.push_back(1e3 + static_cast<double>(random() % 5'000'000));
    sum += weights.back();
  }
  const double kTotal = 60e9;
  const auto got = Serve(weights, predicted, measured, kTotal);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double fair = static_cast<double>(weights[i]) / static_cast<double>(sum);
    EXPECT_NEAR(got[i] / kTotal / fair, 1, 0.03) << i;
  }
}

TEST(DeficitRoundRobin, WhoWasAbsentComesFirst) {
  DeficitRoundRobin drr;
  std::vector<std::unique_ptr<Flow>> busy;
  for (int i = 0; i < 10; ++i) {
    busy.push_back(NewFlow(5));
    drr.SetWaiting(busy.back().get(), true);
  }
  for (int i = 0; i < 95; ++i) drr.Charge(drr.Next(), 5);
  const auto light = NewFlow(1), other = NewFlow(1);
  drr.SetWaiting(light.get(), true);
  drr.SetWaiting(other.get(), true);
  EXPECT_EQ(drr.Next(), light.get());
  drr.Charge(light.get(), 5);
  EXPECT_EQ(drr.Next(), other.get()) << "in the order in which they came";
  drr.Charge(other.get(), 5);
  // To go and to come again pays no debt.
  drr.SetWaiting(light.get(), false);
  drr.SetWaiting(light.get(), true);
  EXPECT_NE(drr.Next(), light.get());
}

// To ask who is next pays nothing: a tenant that was served long work, and is next but finds no
// room, comes after one that owes a little and returns meanwhile.
TEST(DeficitRoundRobin, WhoOwesLeastComesFirstUntilTheNextIsCharged) {
  DeficitRoundRobin drr;
  const auto heavy = NewFlow(1), light = NewFlow(1);
  drr.SetWaiting(heavy.get(), true);
  drr.SetWaiting(light.get(), true);
  drr.Charge(drr.Next(), 5000);
  ASSERT_EQ(drr.Next(), light.get());
  drr.Charge(light.get(), 1);
  drr.SetWaiting(light.get(), false);
  EXPECT_EQ(drr.Next(), heavy.get()) << "which is not charged, for there is no room";
  drr.SetWaiting(light.get(), true);
  ASSERT_LT(light->deficit(), 0);
  EXPECT_EQ(drr.Next(), light.get());
}

TEST(DeficitRoundRobin, NothingIsSavedUpByWaitingWithoutWork) {
  DeficitRoundRobin drr;
  const auto a = NewFlow(1), b = NewFlow(1);
  drr.SetWaiting(a.get(), true);
  for (int i = 0; i < 1000; ++i) drr.Charge(drr.Next(), 5);
  drr.SetWaiting(b.get(), true);
  int to_b = 0;
  for (int i = 0; i < 100; ++i) {
    Flow* const next = drr.Next();
    to_b += next == b.get();
    drr.Charge(next, 5);
  }
  EXPECT_NEAR(to_b, 50, 1);
}

TEST(DeficitRoundRobin, DebtsAreVoidWhenNobodyWaited) {
  DeficitRoundRobin drr;
  const auto a = NewFlow(1), b = NewFlow(1);
  drr.SetWaiting(a.get(), true);
  drr.Charge(drr.Next(), 1000);
  drr.SetWaiting(a.get(), false);
  EXPECT_FALSE(drr.IsSettled(*a));
  drr.ForgetDebts();
  EXPECT_TRUE(drr.IsSettled(*a));
  drr.SetWaiting(a.get(), true);
  drr.SetWaiting(b.get(), true);
  EXPECT_EQ(drr.Next(), a.get());
}

TEST(DeficitRoundRobin, AnIdleResourceGoesToWhoWantsIt) {
  DeficitRoundRobin drr;
  const auto a = NewFlow(1);
  EXPECT_EQ(drr.Next(), nullptr);
  drr.SetWaiting(a.get(), true);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(drr.Next(), a.get());
    drr.Charge(a.get(), 1e9);
  }
}

// A tenant that never stops waiting is served by its new weight from the next round on.
TEST(DeficitRoundRobin, AWeightMayChangeWhileItsFlowWaits) {
  DeficitRoundRobin drr;
  const auto share = std::make_shared<Share>("t", 1);
  Flow changes(share);
  const auto other = NewFlow(1);
  drr.SetWaiting(&changes, true);
  drr.SetWaiting(other.get(), true);
  const auto part = [&] {
    int got = 0;
    for (int i = 0; i < 1000; ++i) {
      Flow* const next = drr.Next();
      got += next == &changes ? 1 : 0;
      drr.Charge(next, 5);
    }
    return got;
  };
  EXPECT_NEAR(part(), 500, 2);
  share->SetWeight(3);
  EXPECT_NEAR(part(), 750, 2);
  share->SetWeight(1);
  drr.SetWaiting(&changes, false);
  drr.SetWaiting(&changes, true);
  EXPECT_NEAR(part(), 500, 2);
}

TEST(DeficitRoundRobin, WeightsAreWithinTheirLimits) {
  EXPECT_EQ(Share("t", INT64_MAX).weight(), kMaxWeight);
  EXPECT_EQ(Share("t", 0).weight(), 1);
  const double kTotal = 10e9;
  const auto got = Serve({INT64_MAX, INT64_MAX}, {1e6, 1e6}, {1e6, 1e6}, kTotal);
  EXPECT_NEAR(got[0] / kTotal, 0.5, 0.01);
}

}  // namespace
}  // namespace telegrad
