// The text form of Prometheus, version 0.0.4: a line of help, a line of type, and a line for each
// set of labels. That of OpenMetrics (github.com/prometheus/OpenMetrics, specification 1.0.0)
// differs in little: families of counters are named without _total, buckets may have an exemplar
// ("# {labels} value time"), and a line says where the page ends, so that half a page is noticed.
#include "server/admin/exporter.h"

#include <charconv>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "server/admin/tracer.h"

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

std::string TextOf(const Histogram::Exemplar& exemplar) {
  if (exemplar.trace_high == 0 && exemplar.trace_low == 0) return "";
  char time[32];
  std::snprintf(time, sizeof(time), "%.3f", exemplar.at);
  return StrCat(" # {trace_id=\"", HexDigits(exemplar.trace_high), HexDigits(exemplar.trace_low),
                "\"} ", Number(exemplar.seconds), " ", time);
}

// Each bucket counts what the ones before it do, too.
void AppendHistogram(const std::string& name, const LabelledMetric::Sample& sample,
                     MetricsForm form, std::string* page) {
  Labels labels = sample.labels;
  labels.emplace_back("le", "");
  int64_t count = 0;
  for (size_t i = 0; i < sample.histogram.buckets.size(); ++i) {
    count += sample.histogram.buckets[i];
    const std::span<const double> bounds = Histogram::Bounds();
    labels.back().second = i < bounds.size() ? Number(bounds[i]) : "+Inf";
    const bool exemplar = form == MetricsForm::kOpenMetrics && sample.exemplars != nullptr;
    StrAppend(page, name, "_bucket", TextOf(labels), " ", count,
              exemplar ? TextOf((*sample.exemplars)[i]) : "", "\n");
  }
  labels.pop_back();
  StrAppend(page, name, "_sum", TextOf(labels), " ", Number(sample.histogram.seconds), "\n");
  StrAppend(page, name, "_count", TextOf(labels), " ", count, "\n");
}

void AppendMetric(const LabelledMetric& metric, MetricsForm form, std::string* page) {
  constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
  const std::string help = absl::StrReplaceAll(metric.help, {{"\\", "\\\\"}, {"\n", "\\n"}});
  std::string family = metric.name;
  if (form == MetricsForm::kOpenMetrics && metric.kind == MetricInfo::kCounter) {
    constexpr std::string_view kTotal = "_total";
    if (family.ends_with(kTotal)) family.resize(family.size() - kTotal.size());
  }
  StrAppend(page, "# HELP ", family, " ", help, "\n# TYPE ", family, " ", kTypes[metric.kind],
            "\n");
  for (const LabelledMetric::Sample& sample : metric.samples) {
    if (metric.kind == MetricInfo::kHistogram) {
      AppendHistogram(metric.name, sample, form, page);
      continue;
    }
    StrAppend(page, metric.name, TextOf(sample.labels), " ", Number(sample.value), "\n");
  }
}

}  // namespace

MetricsForm FormFor(std::string_view accept) {
  const bool open = accept.find("application/openmetrics-text") != std::string_view::npos;
  return open ? MetricsForm::kOpenMetrics : MetricsForm::kPrometheus;
}

std::string MetricsPage(Metrics& metrics, MetricsForm form) {
  std::string page;
  const auto values = metrics.Values();
  for (int i = 0; i < kNumMetrics; ++i) {
    const MetricInfo& info = AllMetrics()[static_cast<size_t>(i)];
    AppendMetric({.name = std::string(info.name),
                  .kind = info.kind,
                  .help = std::string(info.help),
                  .samples = {{.labels = {}, .value = values[static_cast<size_t>(i)]}}},
                 form, &page);
  }
  for (const LabelledMetric& metric : metrics.Labelled()) AppendMetric(metric, form, &page);
  if (form == MetricsForm::kOpenMetrics) page += "# EOF\n";
  return page;
}

MetricsExporter::MetricsExporter(std::unique_ptr<HttpPage> page) : page_(std::move(page)) {}

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const std::string& address,
                                                                        Metrics* metrics) {
  auto page = HttpPage::Start(
      {.address = address, .path = "/metrics", .body = [metrics](std::string_view accept) {
         const MetricsForm form = FormFor(accept);
         return HttpPage::Options::Body{form == MetricsForm::kOpenMetrics
                                            ? "application/openmetrics-text; version=1.0.0; "
                                              "charset=utf-8"
                                            : "text/plain; version=0.0.4; charset=utf-8",
                                        MetricsPage(*metrics, form)};
       }});
  if (!page.ok()) {
    return absl::UnavailableError(
        StrCat("cannot serve metrics on ", address, ": ", page.status().message()));
  }
  return std::unique_ptr<MetricsExporter>(new MetricsExporter(*std::move(page)));
}

}  // namespace telegrad
