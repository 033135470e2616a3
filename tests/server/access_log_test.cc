// The access log: a line for each operation, lines lost and counted where the disk is full or
// slow, and a new file after the old one was renamed.
#include "server/admin/access_log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/manual_clock.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AccessLogTest : public ::testing::Test {
 protected:
  AccessLogTest() {
    std::string pattern = ::testing::TempDir() + "/access_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/log";
  }
  ~AccessLogTest() override { std::filesystem::remove_all(folder_); }

  static std::vector<std::string> Lines(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  int64_t written() const { return metrics_.count(Metric::kAccessLines); }
  int64_t lost() const { return metrics_.count(Metric::kAccessLinesLost); }
  // Until so many lines are written or lost.
  void Await(int64_t lines) const {
    while (written() + lost() < lines) std::this_thread::yield();
  }

  std::string folder_, path_;
  Metrics metrics_;
  fakes::ManualClock clock_;
};

TEST_F(AccessLogTest, ALineForAWholeOperationAndNoneForItsParts) {
  const auto log = *AccessLog::Open(path_, &metrics_, &clock_);
  Tracer tracer(16, 1, &clock_);
  tracer.AddSink(log.get());
  OperationTrace trace(&tracer, *tracer.Begin({}), "run", "a\"\nb", 1, 2);
  trace.Add("queue", 0, 0);
  clock_.Advance(5'000);
  trace.Note(absl::NotFoundError(""));
  trace.End();
  Await(1);
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr(R"( INFO operation name=run session=1 operation=2 )"
                                  R"(tenant="a\"\nb" us=5 status=NOT_FOUND)"));
  EXPECT_EQ(written(), 1);
}

TEST_F(AccessLogTest, AFullDiskCostsACount) {
  const auto log = *AccessLog::Open("/dev/full", &metrics_, &clock_);
  for (int i = 0; i < 3; ++i) log->Write("a", "session", {{"session", i}});
  Await(3);
  EXPECT_EQ(written(), 0);
  EXPECT_EQ(lost(), 3);
}

// The rest of a line that did not fit is not taken for the next line.
TEST_F(AccessLogTest, HalfALineEndsBeforeTheNextOne) {
  const auto log = *AccessLog::Open(path_, &metrics_, &clock_);
  log->Write("a", "first", {});
  Await(1);
  const auto size = static_cast<rlim_t>(std::filesystem::file_size(path_));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = size + 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  log->Write("a", "second", {});
  log->Write("a", "third", {});
  Await(3);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  log->Write("a", "fourth", {});
  Await(4);
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("first"));
  EXPECT_EQ(lines[1].size(), 10u);
  EXPECT_THAT(lines[2], ::testing::EndsWith("INFO fourth"));
  EXPECT_EQ(written(), 2);
  EXPECT_EQ(lost(), 2);
}

TEST_F(AccessLogTest, ARotatedFileIsMadeAgain) {
  const auto log = *AccessLog::Open(path_, &metrics_, &clock_);
  log->Write("a", "first", {});
  Await(1);
  std::filesystem::rename(path_, path_ + ".1");
  log->Write("a", "second", {});
  Await(2);
  clock_.Advance(1'000'000'000);
  log->Write("a", "third", {});
  Await(3);
  EXPECT_EQ(Lines(path_ + ".1").size(), 2u);
  EXPECT_THAT(Lines(path_), ElementsAre(HasSubstr("third")));
}

TEST_F(AccessLogTest, ASecondHasRoomForSoManyLinesAndForOtherTenants) {
  const auto log = *AccessLog::Open(path_, &metrics_, &clock_);
  constexpr int64_t kHalf = AccessLog::kLinesPerSecond / 2;
  for (int64_t i = 1; i <= kHalf + 5; ++i) {
    log->Write("loud", "x", {});
    Await(i);  // so that none is lost for want of room to wait
  }
  EXPECT_EQ(written(), kHalf);
  EXPECT_EQ(lost(), 5);
  log->Write("quiet", "x", {});
  Await(kHalf + 6);
  EXPECT_EQ(written(), kHalf + 1) << "others had left room for it";
  clock_.Advance(1'000'000'000);
  log->Write("loud", "x", {});
  Await(kHalf + 7);
  EXPECT_EQ(written(), kHalf + 2);
}

// A disk that does not return from a call: whoever ends an operation goes on, and so do the spans
// of all others.
TEST_F(AccessLogTest, AHangingDiskHoldsNobodyUp) {
  std::binary_semaphore returns(0);
  const std::thread::id caller = std::this_thread::get_id();
  auto log = *AccessLog::Open(path_, &metrics_, &clock_, [&](int, std::string_view text) {
    if (std::this_thread::get_id() == caller) {
      ADD_FAILURE() << "written by the thread that has ended the operation";
    } else {
      returns.acquire();
      returns.release();
    }
    return static_cast<ssize_t>(text.size());
  });
  Tracer tracer(16, 1, &clock_);
  tracer.AddSink(log.get());
  constexpr int64_t kMany = 1000;
  for (int64_t i = 0; i < kMany; ++i) {
    OperationTrace(&tracer, *tracer.Begin({}), "run", "a", 1, 2).End();
  }
  EXPECT_EQ(written(), 0);
  EXPECT_NE(tracer.ChromeJson(), "");
  returns.release();
  tracer.RemoveSink(log.get());
  log = nullptr;  // with all that waited
  EXPECT_EQ(written(), kMany);
}

// What waits is bounded, and of the tenant with most of it the oldest goes.
TEST_F(AccessLogTest, LinesThatWaitAreOfAllTenants) {
  std::binary_semaphore returns(0);
  std::atomic<bool> writes{false};
  std::atomic<int64_t> of_quiet{0};
  auto log = *AccessLog::Open(path_, &metrics_, &clock_, [&](int, std::string_view text) {
    writes = true;
    returns.acquire();
    returns.release();
    of_quiet += text.find("INFO quiet") != text.npos ? 1 : 0;
    return static_cast<ssize_t>(text.size());
  });
  log->Write("loud", "loud", {});
  while (!writes) std::this_thread::yield();
  log->Write("quiet", "quiet", {});
  int64_t lines = 2;
  for (int second = 0; second < 3; ++second, clock_.Advance(1'000'000'000)) {
    for (int64_t i = 0; i < AccessLog::kLinesPerSecond / 2; ++i, ++lines) {
      log->Write("loud", "loud", {});
    }
  }
  EXPECT_EQ(lost(), lines - 1 - static_cast<int64_t>(AccessLog::kMostWaiting));
  returns.release();
  log = nullptr;
  EXPECT_EQ(of_quiet, 1);
  EXPECT_EQ(written() + lost(), lines);
}

TEST_F(AccessLogTest, AFolderIsNoFile) {
  EXPECT_EQ(AccessLog::Open(folder_, &metrics_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace telegrad
