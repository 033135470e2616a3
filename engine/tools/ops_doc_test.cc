// docs/ops.md is what the op table says, and its examples and tinygrad's names fit the ops.
#include "engine/tools/ops_doc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/ir/op.h"
#include "engine/ir/text.h"
#include "engine/tools/op_examples.h"

namespace telegrad {
namespace {

TEST(OpsDocTest, ThePageIsWhatTheTablesSay) {
  const auto page = OpsDocument();
  ASSERT_TRUE(page.ok()) << page.status();
  const std::string file = "docs/ops.md";
  if (std::getenv("BLESS") != nullptr) {
    ASSERT_TRUE(WriteFile(file, *page).ok());
    return;
  }
  const auto there = ReadFile(file);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(*there, *page) << "BLESS=1 rewrites " << file;
}

TEST(OpsDocTest, TinygradRowsNameOpsThatThereAre) {
  std::set<std::string_view> seen;
  for (const TinygradRow& row : AllTinygradRows()) {
    EXPECT_TRUE(seen.insert(row.name).second) << row.name << " has two rows";
    for (const std::string& name :
         std::vector<std::string>(absl::StrSplit(ToAbsl(row.ops), ' ', absl::SkipEmpty()))) {
      const auto op = OpFromName(name);
      ASSERT_TRUE(op.has_value()) << row.name << " names " << name;
      EXPECT_TRUE(IsAt(*op, kTensorLevel)) << row.name << " names " << name;
    }
    EXPECT_FALSE(row.ops.empty() && row.note.empty()) << row.name << ": why is there none?";
  }
}

TEST(OpsDocTest, ExamplesAreOfTheirOps) {
  const auto examples = AllOpExamples();
  ASSERT_TRUE(examples.ok()) << examples.status();
  for (const OpExample& example : *examples) {
    const auto& piece = example.piece;
    SCOPED_TRACE(StrCat(Name(example.op), " on the ", LevelNames(example.level), " level"));
    EXPECT_TRUE(Verify(piece).ok()) << Verify(piece);
    const Graph& graph = piece.program != nullptr ? *piece.program->graph : *piece.graph;
    bool found = false;
    for (uint32_t id = 0; id < graph.size(); ++id) found |= graph.op(id) == example.op;
    EXPECT_TRUE(found);
  }
}

}  // namespace
}  // namespace telegrad
