#include "engine/base/temporary_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

class TemporaryFolderTest : public ::testing::Test {
 protected:
  TemporaryFolderTest() : base_(StrCat(testing::TempDir(), "temporary_folder_", getpid())) {
    fs::remove_all(base_);
    fs::create_directory(base_);
    setenv("TMPDIR", base_.c_str(), 1);
  }
  ~TemporaryFolderTest() override {
    unsetenv("TMPDIR");
    fs::remove_all(base_);
  }

  // A process that has a folder with a file in it, and the folder's path.
  pid_t Start(std::string* path) {
    int pipes[2];
    EXPECT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto folder = TemporaryFolder::Make("worker");
      if (!folder) _exit(1);
      fs::create_directory(folder->path() + "/below");
      std::ofstream(folder->path() + "/below/file") << "x" << std::flush;
      const std::string line = folder->path() + "\n";
      if (write(pipes[1], line.data(), line.size()) < 0) _exit(1);
      while (true) pause();
    }
    close(pipes[1]);
    for (char c; read(pipes[0], &c, 1) == 1 && c != '\n';) *path += c;
    close(pipes[0]);
    return child;
  }
  static void Kill(pid_t child) {
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }

  const std::string base_;
};

TEST_F(TemporaryFolderTest, GoesWithItsOwner) {
  std::string path;
  {
    auto folder = TemporaryFolder::Make("driver");
    ASSERT_TRUE(folder);
    const TemporaryFolder moved = *std::move(folder);
    path = moved.path();
    EXPECT_TRUE(path.starts_with(base_ + "/telegrad-driver-")) << path;
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    EXPECT_EQ(SweepTemporaryFolders(), 0) << "this process has it";
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::is_empty(base_));
}

TEST_F(TemporaryFolderTest, ThatOfAProcessThatWasKilledIsSwept) {
  std::string killed, living;
  const pid_t first = Start(&killed), second = Start(&living);
  EXPECT_EQ(SweepTemporaryFolders(), 0) << "both are in use";
  Kill(first);
  ASSERT_TRUE(fs::exists(killed + "/below/file"));
  EXPECT_EQ(SweepTemporaryFolders(), 1);
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(living + "/below/file"));
  Kill(second);
  EXPECT_EQ(SweepTemporaryFolders(), 1);
  EXPECT_TRUE(fs::is_empty(base_));
}

// What only looks like one: without a lock, with another name, reached by a link, for others, too,
// or of another user.
TEST_F(TemporaryFolderTest, WhatIsNotOursStays) {
  const auto make = [&](const std::string& name, bool locked) {
    const std::string path = base_ + "/" + name;
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
    if (locked) std::ofstream(path + "/.telegrad-lock") << "";
    return path;
  };
  make("telegrad-worker-aaaaaa", false);
  make("telegrad-worker-bbbbbbb", true);
  make("telegrad-others-cccccc", true);
  const std::string target = make("elsewhere", true);
  fs::create_directory_symlink(target, base_ + "/telegrad-worker-dddddd");
  fs::permissions(make("telegrad-worker-eeeeee", true), fs::perms::all);
  fs::create_symlink(target + "/.telegrad-lock",
                     make("telegrad-worker-ffffff", false) + "/.telegrad-lock");
  if (geteuid() == 0) {
    const std::string foreign = make("telegrad-worker-gggggg", true);
    ASSERT_EQ(chown(foreign.c_str(), 1, 1), 0);
  }
  const auto count = [&] {
    return std::distance(fs::directory_iterator(base_), fs::directory_iterator());
  };
  const auto before = count();
  EXPECT_EQ(SweepTemporaryFolders(), 0);
  EXPECT_EQ(count(), before);
  EXPECT_TRUE(fs::exists(target + "/.telegrad-lock"));
  make("telegrad-worker-hhhhhh", true);  // as a killed process leaves it
  EXPECT_EQ(SweepTemporaryFolders(), 1);
  EXPECT_EQ(count(), before);
}

TEST_F(TemporaryFolderTest, WithoutATemporaryFolderThereIsNone) {
  fs::remove_all(base_);
  setenv("TMPDIR", "/proc/self", 1);
  EXPECT_FALSE(TemporaryFolder::Make("opencl"));
  EXPECT_EQ(SweepTemporaryFolders(), 0);
}

}  // namespace
}  // namespace telegrad
