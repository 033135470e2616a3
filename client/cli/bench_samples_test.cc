// Percentiles against their definition, and tables against the samples that they are of.
#include "client/cli/bench_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace telegrad::cli {
namespace {

using ::testing::HasSubstr;

// At least so many percent of the values are not larger, and no smaller value has that property.
TEST(BenchSamples, APercentileIsWhatItSays) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> values(1 + random() % 200);
    for (int64_t& v : values) v = static_cast<int64_t>(random() % 50);
    std::ranges::sort(values);
    for (const double percent : {0.1, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
      const int64_t found = Percentile(values, percent);
      const auto part = [&](int64_t most) {  // of the values that are at most this
        return 100.0 *
               static_cast<double>(
                   std::ranges::count_if(values, [&](int64_t v) { return v <= most; })) /
               static_cast<double>(values.size());
      };
      EXPECT_GE(part(found), percent - 1e-9);
      EXPECT_LT(part(found - 1), percent);
    }
  }
  EXPECT_EQ(Percentile({}, 50), 0);
}

TEST(BenchSamples, AreTabledPlottedAndListed) {
  std::vector<BenchSample> samples;
  for (int i = 0; i < 10; ++i) {
    samples.push_back({.tenant = i % 2,
                       .session = i,
                       .due_ns = 1'000'000'000 + i * 100'000'000,
                       .end_ns = 1'000'000'000 + i * 100'000'000 + (i + 1) * 1'000'000,
                       .ok = i != 9});
  }
  const std::vector<std::string> tenants = {"even", "odd"};
  const std::string table = BenchTable(samples, tenants);
  // Of 1, 2, ... 9 ms in 910 ms; the tenth failed.
  EXPECT_THAT(table,
              HasSubstr("all                          10        1          9.9      5.000      "
                        "9.000      9.000      9.000      9.000\n"));
  EXPECT_THAT(table, HasSubstr("even                          5        0          6.2      5.000"));
  EXPECT_THAT(table, HasSubstr("odd                           5        1"));
  EXPECT_EQ(BenchTable(std::vector<BenchSample>(), {}).find("nan"), std::string::npos);
  EXPECT_THAT(BenchPlot(samples), HasSubstr("     4.642 ms          5 ####"));
  EXPECT_EQ(BenchPlot({}), "");
  EXPECT_THAT(BenchCsv(samples, tenants),
              HasSubstr("tenant,session,due_ns,end_ns,ok\neven,0,0,1000000,1\nodd,1,100000000,"));
}

}  // namespace
}  // namespace telegrad::cli
