// What a thread puts off during a burst of events is done once at its end, or before it waits.
#include "engine/base/burst.h"

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

class Counted final : public Burst::Part {
 public:
  void EndOfBurst() override {
    ++ends;
    if (at_end) at_end();
  }
  int ends = 0;
  std::function<void()> at_end;
};

TEST(BurstTest, OutsideOfOneNothingIsPutOff) {
  const auto part = std::make_shared<Counted>();
  EXPECT_FALSE(Burst::PutOff(part));
  {
    const Burst burst;
    std::thread([&] { EXPECT_FALSE(Burst::PutOff(part)) << "that thread is in none"; }).join();
  }
  EXPECT_FALSE(Burst::PutOff(part));
  EXPECT_EQ(part->ends, 0);
}

TEST(BurstTest, EachPartIsDoneOnceAtTheEnd) {
  const auto one = std::make_shared<Counted>(), other = std::make_shared<Counted>();
  {
    const Burst burst;
    EXPECT_FALSE(burst.MayGoOn()) << "nothing would be gained";
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(Burst::PutOff(one));
    EXPECT_TRUE(Burst::PutOff(other));
    EXPECT_TRUE(burst.MayGoOn());
    EXPECT_EQ(one->ends, 0);
  }
  EXPECT_EQ(one->ends, 1);
  EXPECT_EQ(other->ends, 1);
}

TEST(BurstTest, WhoWaitsDoesItBefore) {
  const auto part = std::make_shared<Counted>();
  {
    const Burst burst;
    EXPECT_TRUE(Burst::PutOff(part));
    Burst::Flush();
    EXPECT_EQ(part->ends, 1);
    EXPECT_FALSE(burst.MayGoOn());
    EXPECT_TRUE(Burst::PutOff(part)) << "the burst goes on";
  }
  EXPECT_EQ(part->ends, 2);
}

TEST(BurstTest, WhatEndsPutsOffNothing) {
  const auto part = std::make_shared<Counted>(), more = std::make_shared<Counted>();
  part->at_end = [&] { EXPECT_FALSE(Burst::PutOff(more)); };
  {
    const Burst burst;
    EXPECT_TRUE(Burst::PutOff(part));
  }
  EXPECT_EQ(part->ends, 1);
  EXPECT_EQ(more->ends, 0);
}

// A part may have to wait at its end, for what parts behind it are to send.
TEST(BurstTest, WhatWaitsAtTheEndDoesTheRestBefore) {
  const auto first = std::make_shared<Counted>(), second = std::make_shared<Counted>();
  first->at_end = [&] {
    Burst::Flush();
    EXPECT_EQ(second->ends, 1);
    EXPECT_FALSE(Burst::PutOff(second)) << "it is still the end";
  };
  {
    const Burst burst;
    EXPECT_TRUE(Burst::PutOff(first));
    EXPECT_TRUE(Burst::PutOff(second));
  }
  EXPECT_EQ(first->ends, 1);
  EXPECT_EQ(second->ends, 1);
}

TEST(BurstTest, WhatIsDoneFirstMayPutOffTheRest) {
  const auto first = std::make_shared<Counted>(), rest = std::make_shared<Counted>();
  first->at_end = [&] {
    EXPECT_EQ(rest->ends, 0);
    EXPECT_FALSE(Burst::PutOffFirst(first)) << "so that the end comes";
    EXPECT_TRUE(Burst::PutOff(rest));
  };
  rest->at_end = [&] { EXPECT_FALSE(Burst::PutOffFirst(first)); };
  EXPECT_FALSE(Burst::PutOffFirst(first)) << "there is no burst";
  {
    const Burst burst;
    EXPECT_TRUE(Burst::PutOff(rest));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Burst::PutOffFirst(first));
    EXPECT_TRUE(burst.MayGoOn());
  }
  EXPECT_EQ(first->ends, 1);
  EXPECT_EQ(rest->ends, 1);
}

// So that a burst that does not end holds nothing up.
TEST(BurstTest, GoesOnForASetTimeOnly) {
  const auto part = std::make_shared<Counted>();
  const Burst burst;
  EXPECT_TRUE(Burst::PutOff(part));
  while (burst.MayGoOn()) EXPECT_TRUE(Burst::PutOff(part));
  EXPECT_EQ(part->ends, 0) << "its end is for who handles the events";
}

}  // namespace
}  // namespace telegrad
