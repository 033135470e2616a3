// The text form of Prometheus, version 0.0.4: a line of help, a line of type, and a line for each
// set of labels.
#include "server/admin/exporter.h"

#include <charconv>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

std::string Number(double value) {
  char text[32];  // the shortest that reads as the same
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string TextOf(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    StrAppend(&text, text.empty() ? "{" : ",", name, "=\"",
              absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}}), "\"");
  }
  return text.empty() ? text : text + "}";
}

// Each bucket counts what the ones before it do, too.
void AppendHistogram(const std::string& name, const LabelledMetric::Sample& sample,
                     std::string* page) {
  Labels labels = sample.labels;
  labels.emplace_back("le", "");
  int64_t count = 0;
  for (size_t i = 0; i < sample.histogram.buckets.size(); ++i) {
    count += sample.histogram.buckets[i];
    const std::span<const double> bounds = Histogram::Bounds();
    labels.back().second = i < bounds.size() ? Number(bounds[i]) : "+Inf";
    StrAppend(page, name, "_bucket", TextOf(labels), " ", count, "\n");
  }
  labels.pop_back();
  StrAppend(page, name, "_sum", TextOf(labels), " ", Number(sample.histogram.seconds), "\n");
  StrAppend(page, name, "_count", TextOf(labels), " ", count, "\n");
}

void AppendMetric(const LabelledMetric& metric, std::string* page) {
  constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
  const std::string help = absl::StrReplaceAll(metric.help, {{"\\", "\\\\"}, {"\n", "\\n"}});
  StrAppend(page, "# HELP ", metric.name, " ", help, "\n# TYPE ", metric.name, " ",
            kTypes[metric.kind], "\n");
  for (const LabelledMetric::Sample& sample : metric.samples) {
    if (metric.kind == MetricInfo::kHistogram) {
      AppendHistogram(metric.name, sample, page);
      continue;
    }
    StrAppend(page, metric.name, TextOf(sample.labels), " ", Number(sample.value), "\n");
  }
}

}  // namespace

std::string MetricsPage(Metrics& metrics) {
  std::string page;
  const auto values = metrics.Values();
  for (int i = 0; i < kNumMetrics; ++i) {
    const MetricInfo& info = AllMetrics()[static_cast<size_t>(i)];
    AppendMetric({.name = std::string(info.name),
                  .kind = info.kind,
                  .help = std::string(info.help),
                  .samples = {{.labels = {}, .value = values[static_cast<size_t>(i)]}}},
                 &page);
  }
  for (const LabelledMetric& metric : metrics.Labelled()) AppendMetric(metric, &page);
  return page;
}

MetricsExporter::MetricsExporter(std::unique_ptr<HttpPage> page) : page_(std::move(page)) {}

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const std::string& address,
                                                                        Metrics* metrics) {
  auto page = HttpPage::Start({.address = address,
                               .path = "/metrics",
                               .content_type = "text/plain; version=0.0.4; charset=utf-8",
                               .body = [metrics] { return MetricsPage(*metrics); }});
  if (!page.ok()) {
    return absl::UnavailableError(
        StrCat("cannot serve metrics on ", address, ": ", page.status().message()));
  }
  return std::unique_ptr<MetricsExporter>(new MetricsExporter(*std::move(page)));
}

}  // namespace telegrad
