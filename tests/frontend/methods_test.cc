// The table of methods against what is declared, what is tested, and the page made of it.
// BLESS=1 writes docs/tensor.md anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>

#include "engine/base/files.h"
#include "engine/base/strings.h"

namespace telegrad::testing {
namespace {

struct Method {
  std::string_view section, ours, tinygrad, pytorch, numpy;
};
constexpr Method kMethods[] = {
#define METHOD(...) {__VA_ARGS__},
#define ABSENT(...)
#include "engine/frontend/tensor/methods.def"
#undef METHOD
#undef ABSENT
};
struct Absent {
  std::string_view tinygrad, reason;
};
constexpr Absent kAbsent[] = {
#define METHOD(...)
#define ABSENT(...) {__VA_ARGS__},
#include "engine/frontend/tensor/methods.def"
#undef METHOD
#undef ABSENT
};

std::string Read(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

// The words that a pattern's first group matches.
std::set<std::string> Matches(const std::string& text, const char* pattern) {
  std::set<std::string> out;
  const std::regex regex(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i) {
    out.insert((*i)[1]);
  }
  return out;
}

std::string Cell(std::string_view name) { return name.empty() ? "" : StrCat("`", name, "`"); }

std::string Page() {
  std::string out =
      "# Tensor's methods\n\n"
      "This page lists the methods of `Tensor` beside those of tinygrad, PyTorch and NumPy. It is "
      "generated from\n"
      "`engine/frontend/tensor/methods.def`, and a test compares it. "
      "`engine/frontend/tensor/tensor.h` (`Builder::` in\n"
      "`builder.h`) describes each method, `promotion.h` the resulting element types. Tests "
      "compare every row with values from\n"
      "NumPy or PyTorch, on the reference interpreter and the CPU device, and its gradients where "
      "it has a derivative\n"
      "(`tests/frontend`). Layers, optimizers and random numbers are in [nn.md](nn.md).\n";
  std::string_view section;
  for (const Method& m : kMethods) {
    if (m.section != section) {
      section = m.section;
      StrAppend(&out, "\n## ", section,
                "\n\n| Telegrad | tinygrad | PyTorch | NumPy |\n|---|---|---|---|\n");
    }
    StrAppend(&out, "| ", Cell(m.ours), " | ", Cell(m.tinygrad), " | ", Cell(m.pytorch), " | ",
              Cell(m.numpy), " |\n");
  }
  StrAppend(&out, "\n## Methods of tinygrad that are absent\n\n| tinygrad | why |\n|---|---|\n");
  for (const Absent& a : kAbsent) StrAppend(&out, "| `", a.tinygrad, "` | ", a.reason, " |\n");
  return out;
}

TEST(MethodsTest, ThePageIsMadeOfTheTable) {
  const std::string path = "docs/tensor.md";
  if (std::getenv("BLESS") != nullptr) {
    ASSERT_TRUE(WriteFile(path, Page()).ok());
  }
  EXPECT_TRUE(Read(path) == Page()) << path << " is not made of the table; BLESS=1 writes it";
}

TEST(MethodsTest, EveryDeclarationHasARow) {
  std::set<std::string> rows;
  for (const Method& m : kMethods) {
    EXPECT_TRUE(rows.insert(std::string(m.ours)).second) << m.ours << " is there twice";
  }
  const std::string text = Read("engine/frontend/tensor/tensor.h");
  // Declarations begin in the second column of the class, or in the first.
  const size_t hidden = text.find(" private:");  // what the class keeps to itself
  std::set<std::string> declared =
      Matches(text.substr(0, hidden) + text.substr(text.find("};", hidden)),
              "\n(?:  )?(?:Tensor|std::(?:vector|pair|tuple)<Tensor[^>]*>) ([A-Z]\\w*)\\(");
  ASSERT_GT(declared.size(), 150u);
  declared.erase("Tensor");
  for (const std::string& name : declared) {
    EXPECT_TRUE(rows.contains(name)) << name << " has no row in methods.def";
  }
  for (const std::string& name :
       Matches(Read("engine/frontend/tensor/builder.h"), "\n  Tensor ([A-Z]\\w*)\\(")) {
    static const std::set<std::string> kOwn = {"Param",     "State", "Trainable", "Make",
                                               "MakeSized", "Fail",  "AddSlot",   "Updated"};
    EXPECT_TRUE(kOwn.contains(name) || rows.contains("Builder::" + name))
        << "Builder::" << name << " has no row in methods.def";
  }
}

TEST(MethodsTest, EveryRowIsTested) {
  std::string tests;
  for (const auto& file : std::filesystem::directory_iterator("tests/frontend")) {
    if (file.path().string().ends_with("_test.cc")) StrAppend(&tests, Read(file.path().string()));
  }
  const std::set<std::string> words = Matches(tests, "([A-Za-z0-9]+)");
  for (const Method& m : kMethods) {
    const std::string name(m.ours.substr(m.ours.rfind(':') + 1));
    EXPECT_TRUE(words.contains(name)) << m.ours << " is in no test";
  }
}

}  // namespace
}  // namespace telegrad::testing
