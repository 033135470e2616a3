// Who may own the folder, what may lie in it, how much, and what happens where the disk refuses.
#include "engine/execution/private_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PrivateDirectoryTest : public ::testing::Test {
 protected:
  PrivateDirectoryTest()
      : base_(StrCat(testing::TempDir(), "private_", getpid(), "_",
                     testing::UnitTest::GetInstance()->current_test_info()->name())),
        path_(base_ + "/folder") {
    fs::remove_all(base_);
    fs::create_directories(base_);
  }
  ~PrivateDirectoryTest() override { fs::remove_all(base_); }

  std::unique_ptr<PrivateDirectory> Open(PrivateDirectory::Limits limits = {}) {
    auto folder = PrivateDirectory::Open(path_, limits);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *std::move(folder);
  }
  std::string Refusal() {
    const absl::Status status = PrivateDirectory::Open(path_, {}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  }
  size_t Files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }
  // Makes a file look as if it was last used `seconds` ago.
  void Age(const std::string& name, int seconds) {
    const timespec when{time(nullptr) - seconds, 0};
    const timespec times[2] = {when, when};
    ASSERT_EQ(utimensat(AT_FDCWD, (path_ + "/" + name).c_str(), times, 0), 0);
  }

  const std::string base_, path_;
};

TEST_F(PrivateDirectoryTest, FilesComeBackAndBelongToThisUserAlone) {
  const auto folder = Open();
  EXPECT_TRUE(absl::IsNotFound(folder->Read("a", 10).status()));
  ASSERT_TRUE(folder->Write("a", "first").ok());
  ASSERT_TRUE(folder->Write("a", "second").ok());
  ASSERT_TRUE(folder->Write("empty", "").ok());
  EXPECT_EQ(*folder->Read("a", 10), "second");
  EXPECT_EQ(*Open()->Read("empty", 10), "");
  EXPECT_TRUE(absl::IsFailedPrecondition(folder->Read("a", 5).status()));
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((path_ + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  folder->Remove("a");
  folder->Remove("a");
  EXPECT_TRUE(absl::IsNotFound(folder->Read("a", 10).status()));
  EXPECT_EQ(Files(), 1u);
}

TEST_F(PrivateDirectoryTest, RefusesAFolderThatOthersMayWrite) {
  for (const mode_t mode : {0770, 0702, 0777, 01777}) {
    fs::remove_all(path_);
    ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_THAT(Refusal(), HasSubstr("can be written by others"));
  }
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
  Open();
}

TEST_F(PrivateDirectoryTest, RefusesWhatIsNoFolderOfThisUser) {
  EXPECT_THAT(PrivateDirectory::Open(base_ + "/absent/folder", {}).status().message(),
              HasSubstr("No such file"));
  fs::create_directory(base_ + "/elsewhere");
  fs::create_symlink(base_ + "/elsewhere", path_);
  EXPECT_THAT(Refusal(), HasSubstr("as a folder"));
  fs::remove(path_);
  std::ofstream(path_) << "a file";
  EXPECT_THAT(Refusal(), HasSubstr("as a folder"));
  fs::remove(path_);
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  if (chown(path_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root gives folders away";
  EXPECT_THAT(Refusal(), HasSubstr("belongs to user 12345"));
}

TEST_F(PrivateDirectoryTest, ReadsNothingThatSomebodyElseMayHaveMade) {
  const auto folder = Open();
  const auto refused = [&] { return absl::IsFailedPrecondition(folder->Read("x", 100).status()); };
  std::ofstream(base_ + "/outside") << "content";
  fs::create_symlink(base_ + "/outside", path_ + "/x");
  EXPECT_TRUE(refused()) << "a link";
  folder->Remove("x");
  fs::create_directory(path_ + "/x");
  EXPECT_TRUE(refused()) << "a folder";
  folder->Remove("x");
  ASSERT_EQ(mkfifo((path_ + "/x").c_str(), 0600), 0);
  EXPECT_TRUE(refused()) << "a FIFO, which nobody writes";
  folder->Remove("x");
  ASSERT_TRUE(folder->Write("x", "content").ok());
  ASSERT_EQ(chmod((path_ + "/x").c_str(), 0620), 0);
  EXPECT_TRUE(refused()) << "group writes";
  ASSERT_EQ(chmod((path_ + "/x").c_str(), 0644), 0);
  EXPECT_FALSE(refused());
  EXPECT_EQ(*folder->Read("x", 100), "content");
}

TEST_F(PrivateDirectoryTest, ForgetsWhatWasUsedLongestAgo) {
  const auto folder = Open({.bytes = 1000, .files = 100});
  const std::string content(100, 'c');
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(folder->Write(StrCat("f", i), content).ok());
    Age(StrCat("f", i), 1000 - i);
  }
  ASSERT_TRUE(folder->Read("f1", 1000).ok());  // used now
  ASSERT_TRUE(folder->Write("new", content).ok());
  // From 1100 bytes to at most 875: the three oldest go, f1 is not one of them.
  EXPECT_EQ(folder->evicted(), 3u);
  EXPECT_EQ(folder->bytes(), 800);
  for (const char* gone : {"f0", "f2", "f3"}) EXPECT_FALSE(fs::exists(path_ + "/" + gone)) << gone;
  for (const char* kept : {"f1", "f4", "new"}) EXPECT_TRUE(fs::exists(path_ + "/" + kept)) << kept;
  EXPECT_TRUE(absl::IsResourceExhausted(folder->Write("large", std::string(1001, 'x'))));
}

TEST_F(PrivateDirectoryTest, BoundsFilesTooAndWhatItFinds) {
  {
    const auto folder = Open({.bytes = 1 << 20, .files = 16});
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(folder->Write(StrCat("f", i), "").ok());
      ASSERT_LE(Files(), 16u);
    }
  }
  Open({.bytes = 1 << 20, .files = 8});
  EXPECT_LE(Files(), 8u);
}

TEST_F(PrivateDirectoryTest, ClearsAwayWhatWasLeftHalfWritten) {
  Open();
  std::ofstream(path_ + "/.new.1.1") << "half";
  std::ofstream(path_ + "/.new.1.2") << "half, now";
  Age(".new.1.1", 3600);
  Open();
  EXPECT_FALSE(fs::exists(path_ + "/.new.1.1"));
  EXPECT_TRUE(fs::exists(path_ + "/.new.1.2")) << "its writer may be alive";
}

// A limit on the size of files stands for a full disk: the write fails half way.
TEST_F(PrivateDirectoryTest, AFailedWriteLeavesNothing) {
  const auto folder = Open();
  ASSERT_TRUE(folder->Write("old", "old").ok());
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, small{};
  getrlimit(RLIMIT_FSIZE, &limit);
  small = limit;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = folder->Write("old", std::string(5000, 'x'));
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, before);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_ + "/old"));
  EXPECT_EQ(*folder->Read("old", 10), "old");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(PrivateDirectoryTest, GoesOnWhenTheFolderIsRemoved) {
  const auto folder = Open();
  ASSERT_TRUE(folder->Write("a", "a").ok());
  fs::remove_all(path_);
  EXPECT_TRUE(absl::IsNotFound(folder->Read("a", 10).status()));
  EXPECT_TRUE(absl::IsUnavailable(folder->Write("a", "a")));
}

}  // namespace
}  // namespace telegrad
