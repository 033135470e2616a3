// OnceCache: a value is made once for all that ask for it, the least recently used is evicted,
// bytes are charged to an account, failures and waiting have rules; and FairOnceCache, which
// divides the room among tenants.
#include "engine/base/once_cache.h"

#include <atomic>
#include <barrier>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using Text = std::string;
using TextPtr = std::shared_ptr<const Text>;
using TextCache = OnceCache<Text>;

int64_t Length(const Text& text) { return static_cast<int64_t>(text.size()); }

// A maker of this text that counts how often it was asked.
struct Maker {
  explicit Maker(Text t) : text(std::move(t)) {}
  absl::StatusOr<TextPtr> operator()() {
    ++made;
    return std::make_shared<const Text>(text);
  }
  const Text text;
  std::atomic<int> made{0};
};

TextPtr GetOrDie(TextCache& cache, std::string_view key, Text text,
                 std::shared_ptr<const Share> share = nullptr) {
  Budget budget;
  budget.SetShare(std::move(share));
  auto got = cache.Get(key, &budget, [&]() -> absl::StatusOr<TextPtr> {
    return std::make_shared<const Text>(text);
  });
  EXPECT_TRUE(got.ok()) << got.status();
  return got->value;
}

void AwaitWaits(const TextCache& cache, uint64_t waits) {
  while (cache.counts().waits < waits) std::this_thread::yield();
}

TEST(OnceCache, AValueIsMadeOnceHoweverManyAsk) {
  TextCache cache({}, Length);
  constexpr int kThreads = 8, kKeys = 50;
  std::vector<std::unique_ptr<Maker>> makers;
  for (int k = 0; k < kKeys; ++k) makers.push_back(std::make_unique<Maker>(StrCat("value ", k)));
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int k = 0; k < kKeys; ++k) {
        together.arrive_and_wait();
        Budget budget;
        auto got = cache.Get(StrCat(k), &budget, [&] { return (*makers[k])(); });
        ASSERT_TRUE(got.ok());
        EXPECT_EQ(*got->value, makers[k]->text);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& maker : makers) EXPECT_EQ(maker->made, 1);
  const OnceCacheCounts counts = cache.counts();
  EXPECT_EQ(counts.misses, kKeys);
  EXPECT_EQ(counts.hits, kKeys * (kThreads - 1));
  EXPECT_EQ(counts.entries, kKeys);
}

TEST(OnceCache, TheLeastRecentlyUsedGoesAndWhoHasItKeepsIt) {
  TextCache cache({.max_entries = 2}, Length);
  const TextPtr a = GetOrDie(cache, "a", "A");
  GetOrDie(cache, "b", "B");
  EXPECT_NE(cache.Find("a"), nullptr);
  GetOrDie(cache, "c", "C");
  EXPECT_FALSE(cache.Contains("b"));
  EXPECT_TRUE(cache.Contains("a") && cache.Contains("c"));
  cache.DropOldest();
  EXPECT_FALSE(cache.Contains("a"));
  EXPECT_EQ(*a, "A");
  EXPECT_EQ(cache.counts().evictions, 2u);
}

TEST(OnceCache, BytesAreBoundedAndWhatIsTooLargeIsNotKept) {
  TextCache cache({.max_bytes = 10}, Length);
  GetOrDie(cache, "a", "aaaa");
  GetOrDie(cache, "b", "bbbb");
  EXPECT_EQ(*GetOrDie(cache, "huge", Text(11, 'h')), Text(11, 'h'));
  EXPECT_FALSE(cache.Contains("huge"));
  EXPECT_EQ(cache.counts().bytes, 8);
  GetOrDie(cache, "c", "cc");
  EXPECT_EQ(cache.counts().entries, 3);
  GetOrDie(cache, "d", "d");
  EXPECT_FALSE(cache.Contains("a"));
  EXPECT_EQ(cache.counts().bytes, 7);
}

TEST(OnceCache, TheAccountIsChargedWithWhatIsKeptAndEndsAtZero) {
  const auto account = std::make_shared<Account>("bytes of a cache", 1000, "raise it");
  {
    TextCache cache({.max_entries = 3, .account = account}, Length);
    for (int i = 0; i < 10; ++i) GetOrDie(cache, StrCat(i), Text(static_cast<size_t>(i), 'x'));
    EXPECT_EQ(account->used(), 7 + 8 + 9);
    cache.Erase("8");
    EXPECT_EQ(account->used(), 7 + 9);
    cache.DropOldest();
    EXPECT_EQ(account->used(), 9);
    EXPECT_EQ(cache.All().size(), 1u);
  }
  EXPECT_EQ(account->used(), 0);
}

TEST(OnceCache, ClocksOrderTheUsesOfSeveralCaches) {
  const auto clock = std::make_shared<std::atomic<uint64_t>>(0);
  TextCache one({.clock = clock}, Length), other({.clock = clock}, Length);
  EXPECT_EQ(one.OldestUse(), std::nullopt);
  GetOrDie(one, "a", "A");
  GetOrDie(other, "b", "B");
  EXPECT_LT(one.OldestUse(), other.OldestUse());
  EXPECT_EQ(one.LastUse("a"), one.OldestUse());
  one.Find("a");
  EXPECT_GT(one.OldestUse(), other.OldestUse());
  EXPECT_EQ(one.LastUse("b"), std::nullopt);
}

// A thread that makes the value of "key" until the test says how that ends.
class SlowMaker {
 public:
  explicit SlowMaker(TextCache* cache)
      : thread_([this, cache] {
          result_ = cache->Get("key", &budget, [this]() -> absl::StatusOr<TextPtr> {
            begun_.count_down();
            end_.wait();
            if (!error_.ok()) return error_;
            return std::make_shared<const Text>("slow");
          });
        }) {
    begun_.wait();
  }
  absl::StatusOr<TextCache::Got> End(absl::Status error = absl::OkStatus()) {
    error_ = std::move(error);
    end_.count_down();
    thread_.join();
    return result_;
  }

  Budget budget;

 private:
  std::latch begun_{1}, end_{1};
  absl::Status error_;
  absl::StatusOr<TextCache::Got> result_;
  std::thread thread_;
};

TEST(OnceCache, AWaiterGivesUpByItsOwnBudget) {
  TextCache cache({}, Length);
  SlowMaker slow(&cache);
  Maker maker("mine");
  Budget cancelled;
  absl::Status status;
  std::thread waiter(
      [&] { status = cache.Get("key", &cancelled, [&] { return maker(); }).status(); });
  AwaitWaits(cache, 1);
  cancelled.Cancel();
  waiter.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;

  Budget::Limits soon;
  soon.time = std::chrono::milliseconds(1);
  Budget late(soon);
  status = cache.Get("key", &late, [&] { return maker(); }).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;

  EXPECT_TRUE(cache.Contains("key"));
  EXPECT_EQ(cache.Find("key"), nullptr) << "it is being made";
  const auto made = slow.End();
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->made);
  EXPECT_EQ(maker.made, 0);
  EXPECT_EQ(*cache.Find("key"), "slow");
}

// Two who wait while the maker fails with `error`: what they got, and how many values were made
// for them.
struct Outcome {
  std::vector<absl::Status> waiters;
  int made = 0;
};
Outcome FailWhileOthersWait(TextCache& cache, const absl::Status& error) {
  SlowMaker slow(&cache);
  Maker maker("again");
  Outcome out{std::vector<absl::Status>(2)};
  std::vector<std::thread> threads;
  const uint64_t before = cache.counts().waits;
  for (absl::Status& status : out.waiters) {
    threads.emplace_back([&] {
      Budget budget;
      status = cache.Get("key", &budget, [&] { return maker(); }).status();
    });
  }
  AwaitWaits(cache, before + 2);
  EXPECT_EQ(slow.End(error).status(), error);
  for (std::thread& t : threads) t.join();
  out.made = maker.made;
  return out;
}

TEST(OnceCache, AFailureIsSharedByThoseWhoWaitedAndNotKept) {
  TextCache cache({}, Length);
  const absl::Status wrong = InvalidArgument("no such value");
  const Outcome out = FailWhileOthersWait(cache, wrong);
  for (const absl::Status& status : out.waiters) EXPECT_EQ(status, wrong);
  EXPECT_EQ(out.made, 0);
  EXPECT_FALSE(cache.Contains("key"));
  EXPECT_EQ(*GetOrDie(cache, "key", "later"), "later");
}

TEST(OnceCache, AFailureOfTheMakersCallIsNobodyElses) {
  for (const absl::Status& error :
       {absl::CancelledError("gone"), absl::DeadlineExceededError("late"),
        absl::ResourceExhaustedError("his limit"), absl::UnavailableError("a worker crashed")}) {
    TextCache cache({}, Length);
    const Outcome out = FailWhileOthersWait(cache, error);
    for (const absl::Status& status : out.waiters) EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(out.made, 1) << error;
    EXPECT_EQ(*cache.Find("key"), "again");
  }
}

TEST(OnceCache, MakingOneValueMayAskForAnother) {
  TextCache cache({}, Length);
  Budget budget;
  const auto got = cache.Get("outer", &budget, [&]() -> absl::StatusOr<TextPtr> {
    return std::make_shared<const Text>(*GetOrDie(cache, "inner", "in") + "side");
  });
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got->value, "inside");
  EXPECT_EQ(cache.counts().entries, 2);
}

class FairOnceCache : public ::testing::Test {
 protected:
  // Gets `n` values of the tenant, from `first` on; how many were there.
  int Ask(const std::shared_ptr<const Share>& share, int first, int n) {
    const uint64_t before = cache_.counts().hits;
    for (int i = first; i < first + n; ++i) GetOrDie(cache_, StrCat(i), "v", share);
    return static_cast<int>(cache_.counts().hits - before);
  }
  TextCache cache_{{.max_entries = 8, .fair = true}, Length};
  const std::shared_ptr<const Share> a_ = std::make_shared<Share>("a"),
                                     b_ = std::make_shared<Share>("b");
};

TEST_F(FairOnceCache, ATenantWithinItsShareLosesNothing) {
  Ask(b_, 1, 3);
  Ask(a_, 100, 20);
  EXPECT_EQ(Ask(b_, 1, 3), 3);
  EXPECT_EQ(Ask(a_, 115, 5), 5) << "the rest is a's, most recently used";
}

TEST_F(FairOnceCache, WhatAnotherTenantUsesMovesToIt) {
  Ask(a_, 1, 1);
  EXPECT_EQ(Ask(b_, 1, 1), 1);
  Ask(a_, 100, 20);
  EXPECT_EQ(Ask(b_, 1, 1), 1);
  Ask(b_, 200, 20);
  EXPECT_EQ(Ask(b_, 1, 1), 0) << "kept no longer than if b had made it";
  EXPECT_EQ(cache_.counts().entries, 8);
}

TEST_F(FairOnceCache, AWeightIsAPartOfTheCache) {
  const auto heavy = std::make_shared<Share>("heavy", 3);
  Ask(a_, 100, 20);
  Ask(heavy, 200, 20);
  EXPECT_EQ(Ask(a_, 118, 2), 2);
  EXPECT_EQ(Ask(heavy, 214, 6), 6);
}

}  // namespace
}  // namespace telegrad
