// The HTML page of telegrad-opt --trace: it is well-formed and self-contained, has every step,
// and says where its limit has cut it.
#include "engine/tools/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/tools/opt.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Three sums with constants that move together, and a sum with zero.
constexpr std::string_view kText = R"(
%0 = param i32 [4] slot=1
%1 = param i32 [4] slot=0
%2 = const i32 7
%3 = add i32 [4] %1 %2
%4 = add i32 [4] %3 %2
%5 = add i32 [4] %4 %2
%6 = const i32 0
%7 = add i32 [4] %5 %6
%8 = store %0 %7
%9 = sink %8
)";

std::string TracePage(std::vector<std::string_view> args) {
  const std::string file = StrCat(::testing::TempDir(), "/trace_test_page.html");
  const std::string flag = StrCat("--trace=", file);
  args.push_back(flag);
  args.push_back("--passes=algebra,canonicalize");
  const OptResult result = RunOpt(args, [] { return std::string(kText); });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto page = ReadFile(file);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.ok() ? *page : "";
}

size_t Count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// The part of the page that assigns `name`.
std::string Value(const std::string& page, const std::string& name) {
  const size_t begin = page.find("const " + name + " = ") + name.size() + 9;
  return page.substr(begin, page.find(";\n", begin) - begin);
}

TEST(TraceTest, ThePageNeedsNothingElse) {
  const std::string page = TracePage({});
  for (const std::string_view outside :
       {"http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "import("}) {
    EXPECT_THAT(page, Not(HasSubstr(std::string(outside))));
  }
}

TEST(TraceTest, ThePageIsWellFormed) {
  const std::string page = TracePage({});
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  // Every element is closed in order; <meta> and <!DOCTYPE> have no end. A script is text up to its
  // end.
  std::vector<std::string> open;
  std::string rest = page;
  std::smatch tag;
  while (std::regex_search(rest, tag, std::regex("<(/?)([a-zA-Z0-9]+)[^>]*>"))) {
    const std::string name = tag[2];
    const bool ends = tag[1].length() > 0;
    rest = std::string(tag.suffix());
    if (ends) {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    } else if (name != "meta") {
      open.push_back(name);
      if (name == "script" || name == "style") rest = rest.substr(rest.find("</" + name));
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
  EXPECT_EQ(Count(page, "@TITLE@") + Count(page, "@STEPS@") + Count(page, "@STRINGS@"), 0u);
}

TEST(TraceTest, ThePageHasEveryStep) {
  const std::string page = TracePage({});
  const std::string strings = Value(page, "strings"), steps = Value(page, "steps");
  EXPECT_THAT(strings, HasSubstr("\"algebra piece0\""));
  EXPECT_THAT(strings, HasSubstr("\"canonicalize piece0\""));
  EXPECT_THAT(strings, HasSubstr("(x + c0) + c1 -\\u003e x + (c0 + c1)"));
  EXPECT_THAT(strings, HasSubstr("\"engine/rules/algebra.cc:"));
  EXPECT_THAT(strings, HasSubstr("= const i32 21\""));
  // Two passes; x + 0 is x, and the constants meet twice, each time folded.
  EXPECT_EQ(Count(steps, "-1,-1,"), 2u);
  EXPECT_EQ(Count(steps, "\n") + 1, 2u + 3u);
  EXPECT_EQ(Value(page, "leftOut"), "0");
}

TEST(TraceTest, TheLimitIsSaid) {
  const std::string page = TracePage({"--trace-limit=1"});
  EXPECT_EQ(Count(Value(page, "steps"), "\n") + 1, 2u + 1u);
  EXPECT_EQ(Value(page, "leftOut"), "2");
  EXPECT_THAT(page, HasSubstr("more rewrites were left out"));
}

}  // namespace
}  // namespace telegrad
