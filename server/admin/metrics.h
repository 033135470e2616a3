// The daemon's metrics: one atomic count per row of metrics.def. The code that does the work counts
// it; figures that another part keeps already (the executable cache, the devices) are fetched by a
// collector before the values are read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "server/admin/histogram.h"

namespace telegrad {

enum class Metric : int {
#define METRIC(name, ...) name,
#include "server/admin/metrics.def"
#undef METRIC
};

inline constexpr int kNumMetrics = 0
#define METRIC(...) +1
#include "server/admin/metrics.def"
#undef METRIC
    ;

struct MetricInfo {
  enum Kind { kCounter, kGauge, kHistogram };  // rows of the table are one of the first two
  std::string_view name;
  Kind kind;
  double unit;  // the unit of one count: 1e-9 where nanoseconds are counted and seconds are shown
  std::string_view help;
};

// All rows, indexed by Metric.
std::span<const MetricInfo> AllMetrics();

// A metric with a value for each of several sets of labels.
struct LabelledMetric {
  struct Sample {
    std::vector<std::pair<std::string, std::string>> labels;  // name, value
    double value = 0;
    Histogram::Counts histogram = {};                                 // instead, of a kHistogram
    std::shared_ptr<const Histogram::Exemplars> exemplars = nullptr;  // likewise; may be null
  };
  std::string name;
  MetricInfo::Kind kind = MetricInfo::kGauge;
  std::string help;
  std::vector<Sample> samples = {};
};

class Metrics {
 public:
  void Add(Metric metric, int64_t n = 1) {
    counts_[static_cast<int>(metric)].fetch_add(n, std::memory_order_relaxed);
  }
  void Set(Metric metric, int64_t n) {
    counts_[static_cast<int>(metric)].store(n, std::memory_order_relaxed);
  }
  int64_t count(Metric metric) const {
    return counts_[static_cast<int>(metric)].load(std::memory_order_relaxed);
  }

  // `collector` is called before each Values(), and must outlive this.
  void AddCollector(std::function<void(Metrics&)> collector);

  // The same for metrics with labels; called with no lock held, on several threads at a time.
  void AddLabelled(std::function<std::vector<LabelledMetric>()> collector);

  // Every metric in its unit, in the order of AllMetrics().
  std::array<double, kNumMetrics> Values();
  std::vector<LabelledMetric> Labelled();
  // The value of one metric, without calling the collectors.
  double Value(Metric metric) const {
    return static_cast<double>(count(metric)) * AllMetrics()[static_cast<size_t>(metric)].unit;
  }

 private:
  std::array<std::atomic<int64_t>, kNumMetrics> counts_{};
  Mutex mutex_;
  std::vector<std::function<void(Metrics&)>> collectors_ TG_GUARDED_BY(mutex_);
  std::vector<std::function<std::vector<LabelledMetric>()>> labelled_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
