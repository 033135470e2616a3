// Mistakes planted in the programs are found and reported for what they are, in whatever order
// the threads run. mistakes.txt lists them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <sstream>

#include "tests/programs/problems.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  std::string name, program, from, to, message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

std::vector<Mistake> AllMistakes() {
  std::vector<Mistake> mistakes;
  std::istringstream lines(ReadData("mistakes.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t in = line.find(" in ");
    if (line.starts_with("- ")) {
      mistakes.back().from += line.substr(2) + "\n";
    } else if (line.starts_with("+ ")) {
      mistakes.back().to += line.substr(2) + "\n";
    } else if (line.starts_with("= ")) {
      mistakes.back().message = line.substr(2);
    } else {
      mistakes.push_back({line.substr(0, in), line.substr(in + 4), "", "", ""});
    }
  }
  return mistakes;
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreFound) {
  const Mistake& m = GetParam();
  std::string text = ReadData(m.program + ".uop");
  const size_t at = text.find(m.from);
  ASSERT_NE(at, std::string::npos) << m.from;
  ASSERT_EQ(text.find(m.from, at + 1), std::string::npos) << "there twice";
  ASSERT_FALSE(m.message.empty());
  text.replace(at, m.from.size(), m.to);
  const Problem problem = FindProblem(m.program);
  const absl::Status status = RunProblem(problem, text, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(m.message));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_EQ(RunProblem(problem, text, {.seed = seed}).code(), absl::StatusCode::kInternal)
        << "seed " << seed;
  }
}

TEST(MistakesFile, HasMany) { EXPECT_GE(AllMistakes().size(), 15u); }

INSTANTIATE_TEST_SUITE_P(All, Mistakes, ::testing::ValuesIn(AllMistakes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad::testing
