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
      const bool counter = info.kind == MetricInfo::kCounter;
      prometheus::MetricFamily family;
      family.name = info.name;
      family.help = info.help;
      family.type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
      prometheus::ClientMetric metric;
      (counter ? metric.counter.value : metric.gauge.value) = values[i];
      family.metric.push_back(std::move(metric));
      families.push_back(std::move(family));
    }
    return families;
  }

 private:
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
