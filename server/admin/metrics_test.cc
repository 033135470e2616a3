// That each row of the table of metrics is counted by some part of the server.
#include "server/admin/metrics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "engine/base/files.h"

namespace telegrad {
namespace {

TEST(Metrics, EveryMetricIsCountedSomewhere) {
  std::set<std::string> counted;
  const std::regex name("Metric::(k[A-Za-z0-9]+)");
  for (const auto& entry : std::filesystem::recursive_directory_iterator("server")) {
    const auto extension = entry.path().extension();
    if (extension != ".cc" && extension != ".h") continue;
    const auto file = ReadFile(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    for (std::sregex_iterator at(file->begin(), file->end(), name), end; at != end; ++at) {
      counted.insert((*at)[1]);
    }
  }
  constexpr const char* kNames[] = {
#define METRIC(name, ...) #name,
#include "server/admin/metrics.def"
#undef METRIC
  };
  for (const char* row : kNames) {
    EXPECT_TRUE(counted.contains(row)) << "no source below server names Metric::" << row;
  }
}

}  // namespace
}  // namespace telegrad
