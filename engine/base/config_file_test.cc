// Files of flags: what they may look like, and what is said of what they may not.
#include "engine/base/config_file.h"

#include "engine/base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr FlagRow kTable[] = {
    {"name", 'n', FlagKind::kString, "someone", "NAME", "A name"},
    {"number", 0, FlagKind::kInt, "7", "N", "A number", Between(0, 10)},
    {"loud", 0, FlagKind::kBool, "false", "", "Much noise"},
    {"part", 0, FlagKind::kList, "", "TEXT", "One of several"},
    {"file", 0, FlagKind::kString, "", "FILE", "Where this is", {}, FlagReload::kCommandLine},
};

std::vector<std::string> Read(std::string_view text) {
  const auto file = ParseConfig(text, "f", kTable);
  if (!file.ok()) return {std::string(file.status().message())};
  std::vector<std::string> out;
  for (const auto& setting : file->settings) {
    out.push_back(StrCat(setting.row->name, "=", setting.value));
  }
  return out;
}

TEST(ConfigFile, SaysWhatFlagsSay) {
  EXPECT_THAT(Read(""), ElementsAre());
  EXPECT_THAT(Read("# nothing\n\n \t\r\n"), ElementsAre());
  EXPECT_THAT(Read("name=a b  # c\nnumber = 3\r\nloud = true\npart = 1\npart = \npart = \" # \""),
              ElementsAre("name=a b", "number=3", "loud=true", "part=1", "part=", "part= # "));
  EXPECT_THAT(Read("name = a#b = c"), ElementsAre("name=a#b = c"));
  EXPECT_THAT(Read("name = \"\""), ElementsAre("name="));
  const auto sections = ParseConfig("number = 1\n\n  [a] # x\nb = c\n", "f", kTable);
  ASSERT_TRUE(sections.ok());
  EXPECT_EQ(sections->sections, "\n\n  [a] # x\nb = c\n") << "its line is the third";
}

TEST(ConfigFile, MistakesAreToldByLine) {
  EXPECT_THAT(Read("nme = 1"), ElementsAre("f:1: no flag is named \"nme\"; there is name"));
  EXPECT_THAT(Read("\nnumbers = 1"),
              ElementsAre("f:2: no flag is named \"numbers\"; there is number"));
  EXPECT_THAT(Read("xyz = 1"),
              ElementsAre("f:1: no flag is named \"xyz\"; telegradd --help lists all"));
  EXPECT_THAT(Read("number = 11"), ElementsAre("f:1: number: 11 is not from 0 to 10"));
  EXPECT_THAT(Read("number = 1\nname = x\nnumber = 2"),
              ElementsAre("f:3: a second number; the first is in line 1"));
  EXPECT_THAT(Read("file = x"), ElementsAre("f:1: file is given on the command line only"));
  EXPECT_THAT(Read("name = \"x"), ElementsAre(HasSubstr("f:1: a value that begins with a quote")));
  EXPECT_THAT(Read("a\x01\nloud = yes"),
              ElementsAre("f:1: \"a?\" is neither NAME = VALUE nor [SECTION]\n"
                          "f:2: loud: \"yes\" is neither true nor false"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "x\n";
  EXPECT_THAT(Read(many), ElementsAre(HasSubstr("\nf: 980 more mistakes")));
}

TEST(ConfigFile, MaySayThatItIsWhole) {
  for (const char* whole :
       {"# end\n", "name = x\n# end\n", "a\r\n# end\r\n", "a\n  # end \n\n \n"}) {
    EXPECT_TRUE(SaysItIsWhole(whole)) << whole;
  }
  for (const char* other : {"", "\n", "# end", "name = x # end\n", "# end of it\n",
                            "# end\nname = x\n", "# end\n# more\n", "## end\n"}) {
    EXPECT_FALSE(SaysItIsWhole(other)) << other;
  }
  const std::string file = "name = x\n[a]\nb = c\n# end\n";
  for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(SaysItIsWhole(file.substr(0, n))) << n;
}

TEST(ConfigFile, IsPrintedAsItIsRead) {
  const std::string_view args[] = {"--name", "a # b", "--part", "x", "--part", " y ", "--loud"};
  const auto flags = Flags::Parse(kTable, args);
  ASSERT_TRUE(flags.ok());
  EXPECT_TRUE(flags->given("name"));
  EXPECT_FALSE(flags->given("number"));
  const std::string printed = PrintConfig(kTable, *flags);
  EXPECT_THAT(Read(printed), ElementsAre("name=a # b", "loud=true", "part=x", "part= y "));
  EXPECT_THAT(printed, HasSubstr("# A number (0 to 10, default 7)\n#number = 7\n"));
}

}  // namespace
}  // namespace telegrad
