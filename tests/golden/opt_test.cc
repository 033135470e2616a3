// telegrad-opt by golden command lines: each .cmd file in opt/ holds commands, one below another,
// and below each what it prints. BLESS=1 runs the commands and rewrites the files. The lines of
// rules in their tables are left out: they move with every edit.
#include "engine/tools/opt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

constexpr std::string_view kPrompt = "$ telegrad-opt ";

// As in a shell, an argument may be between single quotes.
std::vector<std::string> Words(std::string_view arguments) {
  std::vector<std::string> words;
  bool quoted = false, open = false;
  for (const char c : arguments) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      open = false;
    } else {
      if (!open) words.emplace_back();
      open = true;
      words.back() += c;
    }
  }
  return words;
}

OptResult RunCommand(std::string_view arguments) {
  const std::vector<std::string> words = Words(arguments);
  const std::vector<std::string_view> args(words.begin(), words.end());
  return RunOpt(args, [] { return std::string(); });
}

// The commands of `text` with what they print now.
std::string Transcript(const std::string& text) {
  std::string out;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (!line.starts_with(kPrompt)) continue;
    const OptResult result = RunCommand(std::string_view(line).substr(kPrompt.size()));
    StrAppend(&out, line, "\n", result.out);
    if (!result.err.empty()) StrAppend(&out, "[stderr]\n", result.err);
    if (result.exit_code != 0) StrAppend(&out, "[exit ", result.exit_code, "]\n");
  }
  return std::regex_replace(out, std::regex("(\\.cc):[0-9]+"), "$1");
}

std::vector<std::string> Files(const std::string& folder, std::string_view extension) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Stem(const ::testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).stem().string();
}

class OptCommandTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OptCommandTest, PrintsWhatTheFileSays) {
  const auto file = ReadFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string got = Transcript(*file);
  ASSERT_FALSE(got.empty()) << "no commands";
  if (std::getenv("BLESS") != nullptr) {
    ASSERT_TRUE(WriteFile(GetParam(), got).ok());
    return;
  }
  EXPECT_EQ(*file, got) << "BLESS=1 rewrites " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Files, OptCommandTest,
                         ::testing::ValuesIn(Files(GOLDEN_DIR "/opt", ".cmd")), Stem);

class OptLoweringTest : public ::testing::TestWithParam<std::string> {};

// The rows that telegrad-opt runs one by one, verified after each, are lowering's own: they make
// the programs that golden_test knows.
TEST_P(OptLoweringTest, MakesTheGoldenPrograms) {
  const auto file = ReadFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  const OptResult result = RunCommand(StrCat("--piece=0 --passes=schedule,lower ", GetParam()));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto programs = [](std::string_view text) {
    std::string out;
    for (absl::string_view line : absl::StrSplit(ToAbsl(text), '\n', absl::SkipEmpty())) {
      if (line[0] == '%' || absl::StartsWith(line, "program")) StrAppend(&out, ToStd(line), "\n");
    }
    return out;
  };
  EXPECT_EQ(programs(result.out), programs(std::string_view(*file).substr(file->find("---"))));
}

// What the schedule prints, with names of buffers, is read back and lowered to programs that
// compute what the graph does.
TEST_P(OptLoweringTest, ComputesTheSameAtEveryLevel) {
  const OptResult result = RunCommand(
      StrCat("--piece=0 --passes=simplify,schedule,lower --eval --tolerance=1e-4 ", GetParam()));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("eval: after prove: equal"));
}

INSTANTIATE_TEST_SUITE_P(Files, OptLoweringTest, ::testing::ValuesIn(Files(GOLDEN_DIR, ".uop")),
                         Stem);

}  // namespace
}  // namespace telegrad
