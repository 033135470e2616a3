// The rows of telegradd's table of flags: defaults, ranges, unique names, help that stands alone,
// and that each is read.
#include "server/flags.h"

#include <filesystem>
#include <set>
#include <string>

#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(DaemonFlags, EveryDefaultIsAValueOfItsFlag) {
  for (const FlagRow& row : kDaemonFlags) {
    if (row.kind == FlagKind::kList) {
      EXPECT_EQ(row.default_value, "") << row.name;
    } else {
      EXPECT_TRUE(CheckFlagValue(row, row.default_value).ok()) << row.name;
    }
  }
}

TEST(DaemonFlags, EveryNumberHasARangeAndNothingElse) {
  for (const FlagRow& row : kDaemonFlags) {
    EXPECT_EQ(row.kind == FlagKind::kInt, row.range != FlagRange()) << row.name;
    EXPECT_LE(row.range.min, row.range.max) << row.name;
  }
}

TEST(DaemonFlags, NamesAreUniqueAndHelpStandsAlone) {
  std::set<std::string_view> names;
  for (const FlagRow& row : kDaemonFlags) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    ASSERT_FALSE(row.help.empty()) << row.name;
    EXPECT_TRUE(row.help[0] >= 'A' && row.help[0] <= 'Z') << row.name << ": " << row.help;
    EXPECT_NE(row.help.back(), '.') << row.name << ": other text follows the help";
    for (const std::string_view leaning : {"the same", " such ", "of them", "these ", "likewise"}) {
      EXPECT_EQ(row.help.find(leaning), std::string_view::npos) << row.name << ": " << row.help;
    }
  }
}

// Flags of budgets are read by the names of these.
TEST(DaemonFlags, EveryFlagIsReadSomewhere) {
  std::string sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("server")) {
    if (entry.path().extension() != ".cc") continue;
    const auto file = ReadFile(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    sources += *file;
  }
  for (const FlagRow& row : kDaemonFlags) {
    if (row.name.starts_with("job-")) continue;
    EXPECT_NE(sources.find(StrCat("\"", row.name, "\"")), std::string::npos)
        << "no source below server reads --" << row.name;
  }
}

// Where the value is read once, only the content of a file or a folder can change while a daemon
// runs.
TEST(DaemonFlags, WhatIsReadAgainIsAFileOrAFolder) {
  for (const FlagRow& row : kDaemonFlags) {
    if (row.reload != FlagReload::kWhileRunning) continue;
    EXPECT_THAT(row.value, ::testing::AnyOf("FILE", "DIR")) << row.name;
  }
}

}  // namespace
}  // namespace telegrad
