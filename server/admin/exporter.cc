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

void AppendMetric(const LabelledMetric& metric, std::string* page) {
  const std::string help = absl::StrReplaceAll(metric.help, {{"\\", "\\\\"}, {"\n", "\\n"}});
  StrAppend(page, "# HELP ", metric.name, " ", help, "\n# TYPE ", metric.name, " ",
            metric.kind == MetricInfo::kCounter ? "counter" : "gauge", "\n");
  for (const LabelledMetric::Sample& sample : metric.samples) {
    std::string labels;
    for (const auto& [name, value] : sample.labels) {
      StrAppend(&labels, labels.empty() ? "{" : ",", name, "=\"",
                absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}}), "\"");
    }
    if (!labels.empty()) labels += "}";
    StrAppend(page, metric.name, labels, " ", Number(sample.value), "\n");
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
