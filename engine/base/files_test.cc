// Whether a file can be written is known before it is: for each reason why it cannot, the message
// has the path, the reason and what to do.
#include "engine/base/files.h"

#include <unistd.h>

#include <filesystem>

#include "engine/base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() : folder_(StrCat(::testing::TempDir(), "files_", getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~FilesTest() override {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(folder_);
  }
  std::string At(std::string_view name) const { return StrCat(folder_, "/", name); }

  const std::string folder_;
};

void ExpectRefused(const absl::Status& status, const std::string& path, const std::string& why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(why)));
}

TEST_F(FilesTest, AFileThatCanBeMadeOrIsThere) {
  for (const auto& check : {&CheckWritable, &CheckReplaceable}) {
    EXPECT_EQ(check(At("new")), absl::OkStatus());
    EXPECT_EQ(check("new_in_this_folder"), absl::OkStatus());
    EXPECT_FALSE(std::filesystem::exists(At("new"))) << "a check makes no file";
  }
  ASSERT_EQ(WriteFile(At("old"), "content"), absl::OkStatus());
  EXPECT_EQ(CheckWritable(At("old")), absl::OkStatus());
  EXPECT_EQ(CheckReplaceable(At("old")), absl::OkStatus());
  const auto content = ReadFile(At("old"));
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(*content, "content");
}

TEST_F(FilesTest, WhatCannotBeAFile) {
  ASSERT_EQ(WriteFile(At("old"), ""), absl::OkStatus());
  const std::string absent = At("absent/x"), inside = At("old/x"),
                    longer = At(std::string(300, 'x'));
  for (const auto& check : {&CheckWritable, &CheckReplaceable}) {
    ExpectRefused(check(absent), absent, "there is no folder");
    ExpectRefused(check(absent), absent, "; make it, or name another file");
    ExpectRefused(check(inside), inside, "Not a directory; name a file in another folder");
    ExpectRefused(check(folder_), folder_, "it is a folder; name a file in it");
    ExpectRefused(check(longer), longer, "File name too long; name another file");
  }
}

// Output can go to a device, which a file must not replace.
TEST_F(FilesTest, ADeviceIsWrittenButNotReplaced) {
  EXPECT_EQ(CheckWritable("/dev/null"), absl::OkStatus());
  ExpectRefused(CheckReplaceable("/dev/null"), "/dev/null", "it is not a regular file");
}

// For as long as it lives, a process of root, who may write everywhere, is one of another user.
class WithoutRoot {
 public:
  explicit WithoutRoot(const std::string& folder) : root_(getuid() == 0) {
    if (!root_) return;
    EXPECT_EQ(chown(folder.c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(setresuid(kNobody, kNobody, 0), 0);
  }
  ~WithoutRoot() {
    if (root_) EXPECT_EQ(setresuid(0, 0, 0), 0);
  }

 private:
  static constexpr uid_t kNobody = 65534;
  const bool root_;
};

TEST_F(FilesTest, Permissions) {
  const WithoutRoot other(folder_);
  using std::filesystem::perms;
  ASSERT_EQ(WriteFile(At("old"), ""), absl::OkStatus());
  std::filesystem::permissions(At("old"), perms::owner_read);
  ExpectRefused(CheckWritable(At("old")), At("old"), "Permission denied; name another file");
  EXPECT_EQ(CheckReplaceable(At("old")), absl::OkStatus());
  std::filesystem::permissions(At("old"), perms::owner_read | perms::owner_write);
  std::filesystem::permissions(folder_, perms::owner_read | perms::owner_exec);
  EXPECT_EQ(CheckWritable(At("old")), absl::OkStatus());
  for (const std::string& path : {At("old"), At("new")}) {
    ExpectRefused(CheckReplaceable(path), path, "Permission denied; name a file in another folder");
  }
}

}  // namespace
}  // namespace telegrad
