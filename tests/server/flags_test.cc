// The rows of telegradd's table of flags: defaults, ranges, unique names, and help that stands
// alone.
#include "server/flags.h"

#include <set>

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
