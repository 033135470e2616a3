// Golden text IR: each .uop file holds a tensor graph and, after it, the programs that it becomes
// for one made-up target, or in workgroups/ for a GPU. A change of behaviour shows here as a diff;
// BLESS=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_join.h"
#include "engine/base/files.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"

namespace telegrad {
namespace {

constexpr std::string_view kSeparator = "--- programs\n";

Target MadeUpTarget() {
  Target target;
  target.arch = "x86-64";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.threads = 2;
  return target;
}

Target TargetOf(const std::filesystem::path& file) {
  constexpr int kMultiprocessors = 4;  // few, so that small kernels show what large ones are like
  return file.parent_path().filename() == "workgroups"
             ? *NvidiaTarget(8, 0, kMultiprocessors, 163840)
             : MadeUpTarget();
}

std::string Programs(std::string_view graph_text, const Target& target) {
  Graph graph;
  const auto root = Parse(graph_text, &graph);
  if (!root.ok()) return root.status().ToString();
  if (const auto s = Verify(*root, kTensorLevel); !s.ok()) return s.ToString();
  Budget budget;
  const auto schedule = ScheduleGraph(*root, &budget);
  if (!schedule.ok()) return schedule.status().ToString();
  std::string text;
  for (size_t k = 0; k < schedule->kernels.size(); ++k) {
    const ScheduledKernel& kernel = schedule->kernels[k];
    const auto program = Lower(kernel.graph, target, "kernel" + std::to_string(k), &budget);
    if (!program.ok()) return program.status().ToString();
    // The list is all that was decided.
    const auto again =
        Lower(kernel.graph, target, program->name, &budget, nullptr, {.moves = program->moves});
    if (!again.ok()) return again.status().ToString();
    if (Print(*again) != Print(*program)) return "the list makes another program: " + Print(*again);
    text += "; " + absl::StrJoin(kernel.reasons, "; ") + ", arguments";
    for (const BufferRef ref : kernel.arguments) {
      text += ref.kind == BufferRef::Kind::kSlot ? " slot" : " temporary";
      text += std::to_string(ref.index);
    }
    text += "\n; moves: " + program->moves + "\n" + Print(*program) + "\n";
  }
  return text;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ProgramsAreAsTheFileSays) {
  const auto file = ReadFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  const size_t at = file->find(kSeparator);
  const std::string graph = file->substr(0, at);
  const std::string want = at == std::string::npos ? "" : file->substr(at + kSeparator.size());
  const std::string got = Programs(graph, TargetOf(GetParam()));
  if (std::getenv("BLESS") != nullptr) {
    ASSERT_TRUE(WriteFile(GetParam(), graph + std::string(kSeparator) + got).ok());
    return;
  }
  EXPECT_EQ(want, got) << "BLESS=1 rewrites " << GetParam();
}

TEST_P(GoldenTest, TheGraphPrintsAsItWasRead) {
  const auto file = ReadFile(GetParam());
  ASSERT_TRUE(file.ok());
  Graph graph, again;
  const auto root = Parse(std::string_view(*file).substr(0, file->find(kSeparator)), &graph);
  ASSERT_TRUE(root.ok()) << root.status();
  const auto parsed = Parse(Print(*root), &again);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Print(*root), Print(*parsed));
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const std::string directory : {GOLDEN_DIR, GOLDEN_DIR "/workgroups"}) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".uop") files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTest, ::testing::ValuesIn(Files()), [](const auto& info) {
  const std::filesystem::path file(info.param);
  return (file.parent_path().filename() == "workgroups" ? "workgroups_" : "") +
         file.stem().string();
});

}  // namespace
}  // namespace telegrad
