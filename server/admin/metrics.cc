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
  std::lock_guard lock(mutex_);
  collectors_.push_back(std::move(collector));
}

std::array<double, kNumMetrics> Metrics::Values() {
  std::lock_guard lock(mutex_);
  for (const auto& collector : collectors_) collector(*this);
  std::array<double, kNumMetrics> values;
  for (int i = 0; i < kNumMetrics; ++i) {
    values[i] = static_cast<double>(counts_[i].load(std::memory_order_relaxed)) * kMetrics[i].unit;
  }
  return values;
}

}  // namespace telegrad
