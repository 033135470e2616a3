// Golden partitions: each file holds a tensor graph for several devices and, after it, its parts
// and transfers. The first line names the algorithm of its collectives. BLESS=1 rewrites the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/base/files.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/schedule/partition.h"

namespace telegrad {
namespace {

constexpr std::string_view kSeparator = "--- partition\n";

std::string Partitioned(std::string_view text) {
  Placement placement;
  placement.device_of = {0, 1, 2, 3};
  const auto starts = [&](std::string_view line) { return text.substr(0, line.size()) == line; };
  if (starts("# naive")) placement.all_reduce = AllReduceAlgorithm::kNaive;
  if (starts("# all to all")) placement.all_reduce = AllReduceAlgorithm::kAllToAll;
  if (starts("# ring")) placement.all_reduce = AllReduceAlgorithm::kRing;
  Graph graph;
  const auto root = Parse(text, &graph);
  if (!root.ok()) return root.status().ToString();
  if (const auto s = Verify(*root, kTensorLevel); !s.ok()) return s.ToString();
  Budget budget;
  const auto partition = PartitionGraph(*root, {}, placement, &budget);
  return partition.ok() ? Print(*partition) : partition.status().ToString();
}

TEST(GoldenPartitions, AreAsTheFilesSay) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(GOLDEN_DIR)) {
    files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  ASSERT_GE(files.size(), 3u);
  for (const std::string& path : files) {
    const auto file = ReadFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const size_t at = file->find(kSeparator);
    const std::string graph = file->substr(0, at);
    const std::string want = at == std::string::npos ? "" : file->substr(at + kSeparator.size());
    const std::string got = Partitioned(graph);
    if (std::getenv("BLESS") != nullptr) {
      ASSERT_TRUE(WriteFile(path, graph + std::string(kSeparator) + got).ok());
      continue;
    }
    EXPECT_EQ(want, got) << "BLESS=1 rewrites " << path;
  }
}

}  // namespace
}  // namespace telegrad
