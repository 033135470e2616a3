// The memory limit that control groups set, in both versions of their file systems: the least of
// all groups above holds, and a file that cannot be read sets none.
#include "devices/cpu/cgroup_memory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

class CgroupMemoryTest : public ::testing::Test {
 protected:
  CgroupMemoryTest() : root_(::testing::TempDir() + "cgroup_memory_" + std::to_string(getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~CgroupMemoryTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& file, const std::string& text) {
    const std::filesystem::path path(root_ + "/" + file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  int64_t Limit(const std::string& groups) {
    Put("self", groups);
    return CgroupMemoryLimit({root_ + "/self", root_});
  }
  const std::string root_;
};

TEST_F(CgroupMemoryTest, TheLeastOfAllGroupsAboveHolds) {
  Put("a/memory.max", "5000\n");
  Put("a/b/memory.max", "max\n");
  Put("a/b/c/memory.max", "9000\n");
  EXPECT_EQ(Limit("0::/a/b/c\n"), 5000);
  EXPECT_EQ(Limit("0::/other\n"), INT64_MAX);
  Put("memory.max", "4000\n");
  EXPECT_EQ(Limit("0::/the/host/knows/this/path\n"), 4000) << "in a container";
  EXPECT_EQ(Limit("0::/\n"), 4000);
}

TEST_F(CgroupMemoryTest, Version1) {
  Put("memory/x/memory.limit_in_bytes", "3000\n");
  Put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Limit("12:cpu,cpuacct:/x\n9:memory:/x\n0::/x\n"), 3000);
  EXPECT_EQ(Limit("9:hugetlb,memory:/x/y\n"), 3000);
  EXPECT_EQ(Limit("9:memory_other:/x\n"), INT64_MAX);
  Put("unified/x/memory.max", "2000\n");
  EXPECT_EQ(Limit("9:memory:/x\n0::/x\n"), 2000) << "both versions at once";
}

TEST_F(CgroupMemoryTest, WhatDoesNotReadIsNoLimit) {
  Put("a/memory.max", "\n");
  for (const char* groups : {"", "0\n", "0::\n", "0::a\n", "0::/a\n", ":::::\n"}) {
    EXPECT_EQ(Limit(groups), INT64_MAX) << groups;
  }
  EXPECT_EQ(CgroupMemoryLimit({root_ + "/none", root_}), INT64_MAX);
}

}  // namespace
}  // namespace telegrad
