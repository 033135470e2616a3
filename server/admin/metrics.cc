// The table of metrics from metrics.def, and the collectors that are called before values are
// read.
#include "server/admin/metrics.h"

#include <utility>

namespace telegrad {
namespace {

constexpr MetricInfo::Kind kCounter = MetricInfo::kCounter;
constexpr MetricInfo::Kind kGauge = MetricInfo::kGauge;

constexpr MetricInfo kMetrics[] = {
#define METRIC(enumerator, name, kind, unit, help) {name, kind, unit, help},
#include "server/admin/metrics.def"
#undef METRIC
};

}  // namespace

std::span<const MetricInfo> AllMetrics() { return kMetrics; }

void Metrics::AddCollector(std::function<void(Metrics&)> collector) {
  const MutexLock lock(mutex_);
  collectors_.push_back(std::move(collector));
}

void Metrics::AddLabelled(std::function<std::vector<LabelledMetric>()> collector) {
  const MutexLock lock(mutex_);
  labelled_.push_back(std::move(collector));
}

std::array<double, kNumMetrics> Metrics::Values() {
  const MutexLock lock(mutex_);
  for (const auto& collector : collectors_) collector(*this);
  std::array<double, kNumMetrics> values;
  for (int i = 0; i < kNumMetrics; ++i) values[i] = Value(static_cast<Metric>(i));
  return values;
}

std::vector<LabelledMetric> Metrics::Labelled() {
  // Collectors may ask hardware, which takes a while.
  std::vector<std::function<std::vector<LabelledMetric>()>> collectors;
  {
    const MutexLock lock(mutex_);
    collectors = labelled_;
  }
  std::vector<LabelledMetric> all;
  for (const auto& collector : collectors) {
    for (LabelledMetric& metric : collector()) all.push_back(std::move(metric));
  }
  return all;
}

}  // namespace telegrad
