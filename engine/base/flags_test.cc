// Parsing of flags (ranges, choices), the text of --help, --version, and the escapes of manual
// pages and shell completions.
#include "engine/base/flags.h"

#include "engine/base/flag_pages.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr FlagRow kRows[] = {
    {"size", 's', FlagKind::kInt, "4", "N", "Size of it", Between(1, 9)},
    {"level", 0, FlagKind::kChoice, "low", "low|high", "How much"},
    {"file", 'f', FlagKind::kList, "", "FILE", "File [it's 50%: a \\ and a .dot]"},
    {"quiet", 0, FlagKind::kBool, "false", "", "Print nothing", {}, FlagReload::kWhileRunning},
    {"wait", 0, FlagKind::kInt, "1", "SECONDS", "Time to wait", AtLeast(1)},
};

const ProgramPage& Page() {
  static const auto* const kPage = new ProgramPage{.name = "try-it",
                                                   .section = "1",
                                                   .summary = "a program",
                                                   .arguments = "FILE",
                                                   .description = ".One\n\n'Two\\n",
                                                   .exit_codes = "",
                                                   .flags = kRows};
  return *kPage;
}

absl::StatusOr<Flags> Parse(std::vector<std::string_view> args) {
  return Flags::Parse(kRows, args);
}

TEST(Flags, RangesIncludeBothEnds) {
  for (const std::string_view good : {"--size=1", "--size=9"}) EXPECT_TRUE(Parse({good}).ok());
  for (const std::string_view bad : {"--size=0", "--size=10", "-9223372036854775808"}) {
    const auto flags = Parse({bad});
    ASSERT_FALSE(flags.ok());
    if (bad.starts_with("--size")) {
      EXPECT_THAT(std::string(flags.status().message()), HasSubstr(" is not from 1 to 9"));
    }
  }
  const auto flags = Parse({"-s", "10"});
  EXPECT_EQ(flags.status().message(), "--size: 10 is not from 1 to 9");
  EXPECT_EQ(Parse({"--wait=0"}).status().message(), "--wait: 0 is too small; expected at least 1");
}

TEST(Flags, ChoicesAreTheirWords) {
  EXPECT_EQ(Parse({"--level", "high"})->GetString("level"), "high");
  EXPECT_EQ(Parse({})->GetString("level"), "low");
  for (const std::string_view bad : {"hig", "low|high", "", "|"}) {
    EXPECT_EQ(Parse({"--level", bad}).status().message(),
              StrCat("--level: \"", bad, "\" is not one of low, high"));
  }
}

TEST(Flags, HelpHasRangeAndDefaultBehindTheText) {
  const std::string help = FlagHelp(kRows);
  EXPECT_THAT(help, HasSubstr("-s, --size N                Size of it (1 to 9, default 4)\n"));
  EXPECT_THAT(help, HasSubstr("--level low|high            How much (default low)\n"));
  EXPECT_THAT(help, HasSubstr("-f, --file FILE             File [it's 50%: a \\ and a .dot] "
                              "(repeatable)\n"));
}

TEST(Flags, EveryProgramKnowsItsVersion) {
  const auto answer = AnswerPage(Page(), *Parse({"--version"}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->out, StrCat("try-it ", Version(), "\n"));
  EXPECT_FALSE(AnswerPage(Page(), *Parse({})).has_value());
  const auto wrong = AnswerPage(Page(), *Parse({"--generate=html"}));
  EXPECT_EQ(wrong->exit_code, 2);
  EXPECT_THAT(wrong->err, HasSubstr("\"html\" is not one of man, bash, zsh, fish"));
  EXPECT_FALSE(Parse({"--generate="}).ok());
}

TEST(FlagPages, RoffEscapesWhatWouldBeARequest) {
  const std::string page = ManPage(Page());
  EXPECT_THAT(page, HasSubstr("\n.PP\n\\&.One\n.PP\n\\&'Two\\en\n"));
  EXPECT_THAT(page, HasSubstr("a \\e and a .dot]"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-s\\fR, \\fB\\-\\-size\\fR \\fIN\\fR\n"));
  EXPECT_THAT(page, HasSubstr("Print nothing\nChanges to its content take effect"));
}

TEST(FlagPages, ShellsQuoteHelp) {
  EXPECT_THAT(ZshCompletion(Page()), HasSubstr("'*--file=[File \\[it'\\''s 50%\\: a \\\\ and"));
  EXPECT_THAT(FishCompletion(Page()), HasSubstr("-d 'File [it\\'s 50%: a \\\\ and a .dot]'"));
  EXPECT_THAT(BashCompletion(Page()), Not(HasSubstr("50%")));
  EXPECT_THAT(BashCompletion(Page()), HasSubstr("_try_it()"));
}

}  // namespace
}  // namespace telegrad
