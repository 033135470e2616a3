#include "server/admin/access_log.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
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
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr(R"( INFO operation name=run session=1 operation=2 )"
                                  R"(tenant="a\"\nb" us=5 status=NOT_FOUND)"));
  EXPECT_EQ(written(), 1);
}

TEST_F(AccessLogTest, AFullDiskCostsACount) {
  const auto log = *AccessLog::Open("/dev/full", &metrics_, &clock_);
  for (int i = 0; i < 3; ++i) log->Write("session", {{"session", i}});
  EXPECT_EQ(written(), 0);
  EXPECT_EQ(lost(), 3);
}

// The rest of a line that did not fit is not taken for the next line.
TEST_F(AccessLogTest, HalfALineEndsBeforeTheNextOne) {
  const auto log = *AccessLog::Open(path_, &metrics_, &clock_);
  log->Write("first", {});
  const auto size = static_cast<rlim_t>(std::filesystem::file_size(path_));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = size + 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  log->Write("second", {});
  log->Write("third", {});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  log->Write("fourth", {});
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
  log->Write("first", {});
  std::filesystem::rename(path_, path_ + ".1");
  log->Write("second", {});
  clock_.Advance(1'000'000'000);
  log->Write("third", {});
  EXPECT_EQ(Lines(path_ + ".1").size(), 2u);
  EXPECT_THAT(Lines(path_), ElementsAre(HasSubstr("third")));
}

TEST_F(AccessLogTest, ASecondHasRoomForSoManyLines) {
  const auto log = *AccessLog::Open(path_, &metrics_, &clock_);
  for (int64_t i = 0; i < AccessLog::kLinesPerSecond + 5; ++i) log->Write("x", {});
  EXPECT_EQ(written(), AccessLog::kLinesPerSecond);
  EXPECT_EQ(lost(), 5);
  clock_.Advance(1'000'000'000);
  log->Write("x", {});
  EXPECT_EQ(written(), AccessLog::kLinesPerSecond + 1);
}

TEST_F(AccessLogTest, AFolderIsNoFile) {
  EXPECT_EQ(AccessLog::Open(folder_, &metrics_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace telegrad
