// Forms for which room has to be made wait for it without a thread, and are dropped when nobody
// wants them any more; those that no request needs displace nothing.
#include "tests/server/forms_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

bool IsReady(const std::future<absl::StatusOr<FormCache::FormPtr>>& form) {
  return form.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

class RoomTest : public FormsTest {
 protected:
  RoomTest() {
    engine_.cost.temporary_bytes = kMemory / 2;
    taken_ = *Reservation::Try(owner_->accounts.shared(Quota::kDeviceMemory), kMemory);
    room_ = std::make_shared<Ending>();
  }
  // What the answers of another model hold is given back.
  void Free() {
    taken_ = {};
    room_->End();
  }

  Reservation taken_;
};

TEST_F(RoomTest, RoomIsWaitedForWithoutAThread) {
  const auto cache = MakeCache();
  auto form = Get(*cache, {1, 2}, &Always);
  AwaitCompilers();
  EXPECT_EQ(asked_for_room_, 1);
  AwaitCompilers();  // the thread has time for others
  EXPECT_FALSE(IsReady(form));
  auto again = Get(*cache, {1, 2}, &Always);
  AwaitCompilers();
  Free();
  EXPECT_TRUE(form.get().ok());
  EXPECT_TRUE(again.get().ok());
  EXPECT_EQ(asked_for_room_, 1);
}

TEST_F(RoomTest, NothingIsMadeOfWhatNobodyWantsAnyMore) {
  const auto cache = MakeCache();
  std::atomic<bool> cancelled = false;
  const auto until_cancelled = [&] {
    return cancelled ? absl::CancelledError("hung up") : absl::OkStatus();
  };
  auto first = Get(*cache, {1, 2}, until_cancelled);
  auto second = Get(*cache, {1, 2}, until_cancelled);
  AwaitCompilers();
  EXPECT_EQ(source_->reads, 1);
  cancelled = true;
  Free();
  EXPECT_TRUE(absl::IsCancelled(first.get().status()));
  EXPECT_TRUE(absl::IsCancelled(second.get().status()));
  EXPECT_EQ(source_->reads, 1);
  EXPECT_EQ(cache->size(), 0);
  // Nothing is left that counts as being made.
  for (size_t i = 0; i < 2 * FormCache::kMostMaking; ++i) {
    EXPECT_TRUE(Get(*cache, {1, static_cast<int64_t>(i + 1)}, &Always).get().ok());
  }
}

TEST_F(RoomTest, OneThatIsCancelledLeavesTheOthersWaiting) {
  const auto cache = MakeCache();
  std::atomic<bool> cancelled = false;
  auto first = Get(*cache, {1, 2},
                   [&] { return cancelled ? absl::CancelledError("hung up") : absl::OkStatus(); });
  auto second = Get(*cache, {1, 2}, &Always);
  AwaitCompilers();
  cancelled = true;
  Free();
  EXPECT_TRUE(absl::IsCancelled(first.get().status()));
  EXPECT_TRUE(second.get().ok());
}

// The values that a form is for are read of a request that still waits: one that was told is over.
TEST_F(RoomTest, TheValuesAreOfOneWhoStillWaits) {
  const auto cache = MakeCache();
  std::atomic<bool> cancelled = false;
  int first_read = 0, second_read = 0;
  std::promise<absl::Status> first, second;
  const auto get = [&](int* reads, FormCache::Wanted wanted, std::promise<absl::Status>* done) {
    cache->Get(
        {.shapes = {Shape{1, 2}}}, 0,
        [reads] {
          ++*reads;
          return InputValues();
        },
        tenant_, std::move(wanted),
        [done](const absl::StatusOr<FormCache::FormPtr>& f) { done->set_value(f.status()); });
  };
  get(&first_read, [&] { return cancelled ? absl::CancelledError("") : absl::OkStatus(); }, &first);
  AwaitCompilers();
  get(&second_read, &Always, &second);
  cancelled = true;
  Free();
  EXPECT_TRUE(absl::IsCancelled(first.get_future().get()));
  EXPECT_TRUE(second.get_future().get().ok());
  EXPECT_EQ(first_read, 1);
  EXPECT_EQ(second_read, 1);
}

TEST_F(RoomTest, WithoutRoomInTheEndTheErrorSaysWhatIsMissing) {
  const auto cache = MakeCache();
  auto form = Get(*cache, {1, 2}, &Always);
  AwaitCompilers();
  const auto held = std::exchange(room_, nullptr);  // there is no further model to unload
  held->End();
  const absl::Status status = form.get().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("are left of 1048576"));
  EXPECT_EQ(asked_for_room_, 2);
}

// A model that goes while one of its forms waits: whoever asked is told nevertheless.
TEST_F(RoomTest, TheCacheMayGoMeanwhile) {
  auto cache = MakeCache();
  auto form = Get(*cache, {1, 2}, &Always);
  AwaitCompilers();
  cache = nullptr;
  Free();
  EXPECT_TRUE(form.get().ok());
}

TEST_F(RoomTest, AFormThatNoRequestNeedsUnloadsNoModel) {
  const auto cache = MakeCache();
  const absl::Status status = Get(*cache, {1, 2}, nullptr).get().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(asked_for_room_, 0);
}

TEST_F(RoomTest, ARequestThatComesMeanwhileUnloadsOne) {
  const auto cache = MakeCache();
  std::promise<void> begun, asked;
  bool first = true;
  engine_.on_compile = [&](Budget*) {
    if (!std::exchange(first, false)) return absl::OkStatus();
    begun.set_value();
    asked.get_future().wait();
    return absl::OkStatus();
  };
  auto unneeded = Get(*cache, {1, 2}, nullptr);
  begun.get_future().wait();
  auto needed = Get(*cache, {1, 2}, &Always);
  asked.set_value();
  AwaitCompilers();  // has found no room, and begins again
  AwaitCompilers();
  Free();
  EXPECT_TRUE(needed.get().ok());
  EXPECT_TRUE(unneeded.get().ok());
  EXPECT_EQ(asked_for_room_, 1);
}

TEST(EndingTest, TheGoneCacheHasEndedOnceItsLastFormHas) {
  Ending ending;
  int told = 0;
  ending.Then([&] { ++told; });
  EXPECT_FALSE(ending.ended());
  ending.End();
  ending.End();
  EXPECT_EQ(told, 1);
  ending.Then([&] { ++told; });
  EXPECT_EQ(told, 2);
}

TEST_F(FormsTest, AnAnswerThatIsStillSentKeepsTheWeights) {
  auto cache = MakeCache();
  auto form = *Get(*cache, {1, 2}, &Always).get();
  const auto gone = cache->gone();
  AwaitCompilers();
  cache = nullptr;
  EXPECT_FALSE(gone->ended());
  form = nullptr;
  EXPECT_TRUE(gone->ended());
}

TEST_F(FormsTest, FormsThatNoRequestNeedsDisplaceNoneThatIsUsed) {
  const auto cache = MakeCache();
  const auto key = [](size_t i) {
    return FormKey{.shapes = {Shape{1, static_cast<int64_t>(i) + 1}}};
  };
  const auto get = [&](size_t i, FormCache::Wanted wanted) {
    return Get(*cache, key(i).shapes.front(), std::move(wanted)).get().status();
  };
  for (size_t i = 0; i < FormCache::kMostUnneeded; ++i) EXPECT_TRUE(get(i, &Always).ok());
  const absl::Status refused = get(FormCache::kMostUnneeded, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  for (size_t i = FormCache::kMostUnneeded; i < FormCache::kMost; ++i) {
    EXPECT_TRUE(get(i, &Always).ok());
  }
  // To look at one is no use of it: the oldest goes, not the one after it.
  EXPECT_NE(cache->Peek(key(0)), nullptr);
  EXPECT_TRUE(get(FormCache::kMost, &Always).ok());
  EXPECT_EQ(cache->Peek(key(0)), nullptr);
  EXPECT_NE(cache->Find(key(1)), nullptr);
  EXPECT_TRUE(get(FormCache::kMost + 1, &Always).ok());
  EXPECT_NE(cache->Peek(key(1)), nullptr);
  EXPECT_EQ(cache->Peek(key(2)), nullptr);
}

// Whoever sends ever other shapes takes neither the forms of others nor the places at which theirs
// are made.
TEST_F(FormsTest, ManyShapesOfOneTenantLeaveOthersTheirForms) {
  const auto cache = MakeCache();
  const auto other = MakeTenant("other", {});
  const Shape his{3, 3};
  EXPECT_TRUE(Get(*cache, his, &Always, other).get().ok());
  for (size_t i = 0; i < FormCache::kMost + 8; ++i) {
    EXPECT_TRUE(Get(*cache, {1, static_cast<int64_t>(i) + 1}, &Always).get().ok());
  }
  EXPECT_EQ(cache->size(), FormCache::kMost);
  EXPECT_NE(cache->Peek({.shapes = {his}}), nullptr);

  std::promise<void> begun, go_on;
  bool first = true;
  engine_.on_compile = [&](Budget*) {
    if (!std::exchange(first, false)) return absl::OkStatus();
    begun.set_value();
    go_on.get_future().wait();
    return absl::OkStatus();
  };
  std::vector<std::future<absl::StatusOr<FormCache::FormPtr>>> made;
  for (size_t i = 0; i < FormCache::kMostMaking; ++i) {
    made.push_back(Get(*cache, {2, static_cast<int64_t>(i) + 1}, &Always));
  }
  begun.get_future().wait();
  const absl::Status refused = Get(*cache, {2, 1000}, &Always).get().status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  made.push_back(Get(*cache, {3, 4}, &Always, other));
  go_on.set_value();
  for (auto& form : made) EXPECT_TRUE(form.get().ok());
}

}  // namespace
}  // namespace telegrad
