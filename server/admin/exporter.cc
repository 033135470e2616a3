#include "server/admin/exporter.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <utility>
#include <vector>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

class Page final : public prometheus::Collectable {
 public:
  explicit Page(Metrics* metrics) : metrics_(metrics) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    const auto values = metrics_->Values();
    for (int i = 0; i < kNumMetrics; ++i) {
      const MetricInfo& info = AllMetrics()[i];
      families.push_back(Family({.name = std::string(info.name),
                                 .kind = info.kind,
                                 .help = std::string(info.help),
                                 .samples = {{.labels = {}, .value = values[i]}}}));
    }
    for (const LabelledMetric& metric : metrics_->Labelled()) families.push_back(Family(metric));
    return families;
  }

 private:
  static prometheus::MetricFamily Family(const LabelledMetric& from) {
    const bool counter = from.kind == MetricInfo::kCounter;
    prometheus::MetricFamily family;
    family.name = from.name;
    family.help = from.help;
    family.type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    for (const LabelledMetric::Sample& sample : from.samples) {
      prometheus::ClientMetric metric;
      (counter ? metric.counter.value : metric.gauge.value) = sample.value;
      for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
      family.metric.push_back(std::move(metric));
    }
    return family;
  }

  Metrics* const metrics_;
};

}  // namespace

struct MetricsExporter::Impl {
  Impl(const std::string& address, Metrics* metrics)
      : page(std::make_shared<Page>(metrics)), exposer(address, /*num_threads=*/2) {
    exposer.RegisterCollectable(page);
  }
  std::shared_ptr<Page> page;
  prometheus::Exposer exposer;
};

MetricsExporter::MetricsExporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsExporter::~MetricsExporter() = default;

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const std::string& address,
                                                                        Metrics* metrics) {
  try {
    return std::unique_ptr<MetricsExporter>(
        new MetricsExporter(std::make_unique<Impl>(address, metrics)));
  } catch (const std::exception& e) {  // the library reports by exception
    return absl::UnavailableError(
        StrCat("cannot serve metrics on ", address, ": ", std::string_view(e.what())));
  }
}

int MetricsExporter::port() const {
  const std::vector<int> ports = impl_->exposer.GetListeningPorts();
  return ports.empty() ? 0 : ports.front();
}

}  // namespace telegrad
