// What the tests of the compile pool have in common: a pool of fake workers (fake_worker.cc), and a
// list of the workers that have ended.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/status.h"
#include "engine/compile/compile_pool.h"

namespace telegrad {

class CompilePoolTest : public ::testing::Test {
 protected:
  CompilePoolTest()
      : folder_(StrCat(testing::TempDir(), "compile_pool_", getpid(), "_",
                       testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~CompilePoolTest() override {
    pool_.reset();
    std::filesystem::remove_all(folder_);
  }

  CompilePool::Options Options(int workers) {
    CompilePool::Options options;
    options.executable = FAKE_WORKER;
    options.workers = workers;
    options.first_delay = options.last_delay = std::chrono::milliseconds(1);
    options.on_death = [this](const std::string& what, const std::string& kernel) {
      const std::lock_guard lock(mutex_);
      deaths_.push_back(StrCat(kernel, ": ", what));
    };
    return options;
  }
  void Start(const CompilePool::Options& options) {
    auto pool = CompilePool::Start(options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  absl::StatusOr<std::string> Compile(const std::string& text, const std::string& name = "k") {
    Budget budget;
    TG_ASSIGN_OR_RETURN(ProgramImage image, pool_->Compile(text, name, Target(), &budget));
    return image.binary;
  }
  // Compiles in a thread of its own.
  std::thread Beside(const std::string& text, absl::StatusOr<std::string>* result) {
    return std::thread([this, text, result] { *result = Compile(text); });
  }
  std::string Fifo(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  // The fake under another name.
  std::string Called(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_symlink(FAKE_WORKER, path);
    return path;
  }
  std::vector<std::string> deaths() {
    const std::lock_guard lock(mutex_);
    return deaths_;
  }

  const std::string folder_;
  std::mutex mutex_;
  std::vector<std::string> deaths_;
  std::unique_ptr<CompilePool> pool_;
};

}  // namespace telegrad
