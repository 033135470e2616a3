// Accounts: a charge up to the limit is taken, one above it is refused with the use and the way
// to raise the limit, and reservations are returned once.
#include "engine/base/account.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

std::shared_ptr<Account> MakeAccount(int64_t limit) {
  return std::make_shared<Account>("sheep of tenant farm", limit, "buy a meadow");
}

TEST(Account, TakesUpToTheLimitAndNoMore) {
  const auto account = MakeAccount(10);
  EXPECT_TRUE(account->TryReserve(7));
  EXPECT_FALSE(account->TryReserve(4));
  EXPECT_EQ(account->used(), 7);
  EXPECT_FALSE(account->TryReserve(INT64_MAX)) << "no overflow";
  EXPECT_FALSE(account->full());
  EXPECT_TRUE(account->TryReserve(3));
  EXPECT_TRUE(account->full());
  EXPECT_TRUE(account->TryReserve(0));
  account->Charge(5);
  EXPECT_EQ(account->used(), 15) << "what is there is counted";
  EXPECT_FALSE(account->TryReserve(0));
  account->Release(15);
  EXPECT_EQ(account->used(), 0);
}

TEST(Account, ARefusalSaysWhatIsInUseAndHowToRaiseIt) {
  const auto account = MakeAccount(10);
  EXPECT_TRUE(account->TryReserve(7));
  const absl::Status refused = Reservation::Take(account, 4).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "sheep of tenant farm is limited to 10: 7 in use, 4 more asked for; buy a meadow");
  EXPECT_EQ(account->refused(), 1);
}

TEST(Account, ARemedyThatWasReadStaysWhenAnotherIsSet) {
  Account account("bytes", 1, "raise it with --bytes");
  const std::string& before = account.remedy();
  account.SetLimit(2, "ask the operator");
  EXPECT_EQ(before, "raise it with --bytes");
  EXPECT_EQ(account.remedy(), "ask the operator");
}

TEST(Account, AReservationGivesBackOnce) {
  const auto account = MakeAccount(10);
  {
    auto first = Reservation::Take(account, 4);
    ASSERT_TRUE(first.ok());
    Reservation moved = *std::move(first);
    EXPECT_EQ(moved.amount(), 4);
    moved = *Reservation::Take(account, 5);
    EXPECT_EQ(moved.amount(), 5);
  }
  EXPECT_EQ(account->used(), 0);
  EXPECT_TRUE(Reservation::Take(nullptr, 100).ok()) << "nobody counts";
}

TEST(Account, ThreadsNeverPassTheLimitTogether) {
  const auto account = MakeAccount(100);
  std::atomic<int64_t> most{0}, granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        const int64_t amount = 20 + (i + t) % 30;
        if (!account->TryReserve(amount)) continue;
        ++granted;
        int64_t seen = account->used(), before = most.load();
        while (seen > before && !most.compare_exchange_weak(before, seen)) {
        }
        account->Release(amount);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most.load(), 100);
  EXPECT_GT(granted.load(), 0);
  EXPECT_EQ(account->used(), 0);
}

}  // namespace
}  // namespace telegrad
