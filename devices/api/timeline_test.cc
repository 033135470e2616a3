// Timelines: which points a signal reaches, which ones a failure belongs to, waits with time
// limits across threads, and callbacks.
#include "devices/api/timeline.h"

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

absl::Status Error(int n) { return absl::InternalError(std::to_string(n)); }

TEST(Timeline, SignalReachesEverythingBelow) {
  Timeline timeline;
  std::vector<std::pair<uint64_t, absl::Status>> seen;
  for (uint64_t point : {3u, 1u, 4u, 2u}) {
    timeline.OnReached(point,
                       [&seen, point](const absl::Status& s) { seen.push_back({point, s}); });
  }
  EXPECT_TRUE(seen.empty());
  timeline.Signal(3);
  EXPECT_EQ(timeline.value(), 3u);
  ASSERT_EQ(seen.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(seen[i], std::pair(i + 1, absl::OkStatus()));
  timeline.OnReached(2, [&](const absl::Status& s) { seen.push_back({2, s}); });
  EXPECT_EQ(seen.size(), 4u) << "a reached point calls back at once";
  timeline.Signal(2);
  EXPECT_EQ(timeline.value(), 3u) << "a timeline never goes back";
}

TEST(Timeline, FailureBelongsToThePointsItReached) {
  Timeline timeline;
  timeline.Signal(2);
  timeline.Signal(4, Error(7));
  timeline.Signal(5);
  EXPECT_EQ(timeline.Wait(2), absl::OkStatus());
  EXPECT_EQ(timeline.Wait(3), Error(7));
  EXPECT_EQ(timeline.Wait(4), Error(7));
  EXPECT_EQ(timeline.Wait(5), absl::OkStatus());
  timeline.Signal(4);
  EXPECT_EQ(timeline.StatusOf(4), Error(7)) << "a failed point stays failed";
  timeline.Signal(1, Error(8));
  EXPECT_EQ(timeline.StatusOf(1), absl::OkStatus()) << "what succeeded stays so";
  EXPECT_EQ(timeline.StatusOf(9), absl::OkStatus()) << "not reached yet";
}

TEST(Timeline, WaitWakesAcrossThreadsAndTimesOut) {
  Timeline timeline;
  EXPECT_EQ(timeline.Wait(1, absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  std::thread other([&] { timeline.Signal(1, Error(1)); });
  EXPECT_EQ(timeline.Wait(1), Error(1));
  other.join();
}

TEST(Timeline, FailuresAreNeverForgottenAndBounded) {
  Timeline timeline;
  constexpr uint64_t kPoints = 100'000;
  // Even points fail, each with a status of its own, so that no two share an entry.
  for (uint64_t point = 1; point <= kPoints; ++point) {
    timeline.Signal(point, point % 2 == 0 ? Error(static_cast<int>(point)) : absl::OkStatus());
  }
  for (uint64_t point = 2; point <= kPoints; point += 2) {
    ASSERT_FALSE(timeline.StatusOf(point).ok()) << point;
  }
  // The newest are exact.
  for (uint64_t point = kPoints - 8000; point <= kPoints; ++point) {
    ASSERT_EQ(timeline.StatusOf(point),
              point % 2 == 0 ? Error(static_cast<int>(point)) : absl::OkStatus());
  }
}

TEST(Timeline, CallbacksMaySignalAndRegister) {
  Timeline a, b;
  bool done = false;
  a.OnReached(1, [&](const absl::Status&) {
    b.Signal(1);
    a.OnReached(2, [&](const absl::Status&) { done = true; });
    a.Signal(2);
  });
  a.Signal(1);
  EXPECT_TRUE(done);
  EXPECT_EQ(b.value(), 1u);
}

TEST(TimelinePoint, NullIsReached) { EXPECT_EQ(TimelinePoint{}.Wait(), absl::OkStatus()); }

}  // namespace
}  // namespace telegrad
