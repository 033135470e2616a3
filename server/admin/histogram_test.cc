// Counts by buckets, and what the page says of them.
#include "server/admin/histogram.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admin/exporter.h"
#include "server/admin/metrics.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

TEST(Histogram, CountsByBuckets) {
  EXPECT_TRUE(std::ranges::is_sorted(Histogram::Bounds()));
  Histogram histogram;
  for (const double bound : Histogram::Bounds()) {
    histogram.Observe(static_cast<int64_t>(bound * 1e9 + 0.5));      // within
    histogram.Observe(static_cast<int64_t>(bound * 1e9 + 0.5) + 1);  // not any more
  }
  const Histogram::Counts counts = histogram.Read();
  EXPECT_EQ(counts.buckets.front(), 1);
  for (int i = 1; i + 1 < Histogram::kBuckets; ++i) EXPECT_EQ(counts.buckets[i], 2) << i;
  EXPECT_EQ(counts.buckets.back(), 1);
  EXPECT_EQ(counts.total(), 2 * (Histogram::kBuckets - 1));
  histogram.Observe(-5);
  histogram.Observe(INT64_MAX);
  EXPECT_EQ(histogram.Read().buckets.front(), 2);
  EXPECT_EQ(histogram.Read().buckets.back(), 2);
}

TEST(Histogram, IsOnThePageAsPrometheusReadsIt) {
  Histogram histogram;
  histogram.Observe(1'500'000);
  histogram.Observe(1'500'000);
  histogram.Observe(200'000'000'000);
  Metrics metrics;
  metrics.AddLabelled([&] {
    return std::vector<LabelledMetric>{
        {.name = "telegrad_x_seconds",
         .kind = MetricInfo::kHistogram,
         .help = "How long",
         .samples = {{.labels = {{"tenant", "a\"b"}}, .histogram = histogram.Read()}}}};
  });
  const std::string page = MetricsPage(metrics);
  EXPECT_EQ(page.find(" # {"), std::string::npos) << "that form has no exemplars";
  EXPECT_THAT(page, HasSubstr("# TYPE telegrad_x_seconds histogram\n"));
  EXPECT_THAT(page, HasSubstr("telegrad_x_seconds_bucket{tenant=\"a\\\"b\",le=\"0.001\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("telegrad_x_seconds_bucket{tenant=\"a\\\"b\",le=\"0.002\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("telegrad_x_seconds_bucket{tenant=\"a\\\"b\",le=\"100\"} 2\n"
                              "telegrad_x_seconds_bucket{tenant=\"a\\\"b\",le=\"+Inf\"} 3\n"
                              "telegrad_x_seconds_sum{tenant=\"a\\\"b\"} 200.003\n"
                              "telegrad_x_seconds_count{tenant=\"a\\\"b\"} 3\n"));
}

TEST(HistogramTest, OpenMetricsHasAnExemplarOfEachTracedBucket) {
  Histogram histogram;
  histogram.Observe(2'000'000);
  EXPECT_EQ(histogram.exemplars(), nullptr);
  histogram.ObserveTraced(1'500'000, 0x4bf92f3577b34da6, 0xa3ce929d0e0e4736);
  Metrics metrics;
  metrics.AddLabelled([&] {
    return std::vector<LabelledMetric>{
        {.name = "wait",
         .kind = MetricInfo::kHistogram,
         .help = "",
         .samples = {
             {.labels = {}, .histogram = histogram.Read(), .exemplars = histogram.exemplars()}}}};
  });
  const std::string page = MetricsPage(metrics, MetricsForm::kOpenMetrics);
  EXPECT_THAT(page, ::testing::ContainsRegex(
                        "wait_bucket\\{le=\"0.002\"\\} 2 # "
                        "\\{trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"\\} 0.0015 [0-9.]+\n"));
  EXPECT_THAT(page, ::testing::ContainsRegex("wait_bucket\\{le=\"0.005\"\\} 2\n"));
  EXPECT_TRUE(page.ends_with("\n# EOF\n"));
  EXPECT_NE(page.find("# TYPE telegrad_runs counter\n"), std::string::npos);
  EXPECT_NE(page.find("\ntelegrad_runs_total 0\n"), std::string::npos);
}

TEST(HistogramTest, TheReaderChoosesTheForm) {
  EXPECT_EQ(FormFor(""), MetricsForm::kPrometheus);
  EXPECT_EQ(FormFor(" text/plain"), MetricsForm::kPrometheus);
  EXPECT_EQ(FormFor(" application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
            MetricsForm::kOpenMetrics);
}

}  // namespace
}  // namespace telegrad
