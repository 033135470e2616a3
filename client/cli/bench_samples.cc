// Percentiles by the nearest rank, and the forms in which samples are printed: a table, a plot
// with logarithmic bars, and CSV.
#include "client/cli/bench_samples.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <map>

#include "engine/base/strings.h"

namespace telegrad::cli {
namespace {

constexpr double kPercents[] = {50, 90, 99, 99.9, 100};
constexpr int kBarWidth = 50, kBarsOfDecade = 3;

int64_t FirstDue(std::span<const BenchSample> samples) {
  int64_t first = INT64_MAX;
  for (const BenchSample& s : samples) first = std::min(first, s.due_ns);
  return first;
}

std::string Row(const std::string& name, const std::vector<BenchSample>& samples) {
  std::vector<int64_t> latencies;
  int64_t last = 0;
  for (const BenchSample& s : samples) {
    last = std::max(last, s.end_ns);
    if (s.ok) latencies.push_back(s.latency_ns());
  }
  std::ranges::sort(latencies);
  const double seconds =
      samples.empty() ? 1 : std::max(static_cast<double>(last - FirstDue(samples)) * 1e-9, 1e-9);
  char line[128];
  std::snprintf(line, sizeof(line), "%-20.64s %10zu %8zu %12.1f", name.c_str(), samples.size(),
                samples.size() - latencies.size(), static_cast<double>(latencies.size()) / seconds);
  std::string out = line;
  for (const double percent : kPercents) {
    std::snprintf(line, sizeof(line), " %10.3f",
                  static_cast<double>(Percentile(latencies, percent)) * 1e-6);
    out += line;
  }
  return out + "\n";
}

}  // namespace

int64_t Percentile(std::span<const int64_t> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()) - 1e-9);
  return sorted[static_cast<size_t>(
      std::clamp(rank - 1, 0.0, static_cast<double>(sorted.size() - 1)))];
}

std::string BenchTable(std::span<const BenchSample> samples, std::span<const std::string> tenants) {
  char line[160];
  std::snprintf(line, sizeof(line), "%-20s %10s %8s %12s %10s %10s %10s %10s %10s\n", "",
                "REQUESTS", "FAILED", "PER SECOND", "P50 MS", "P90 MS", "P99 MS", "P99.9 MS",
                "MAX MS");
  std::string out = line;
  out += Row("all", {samples.begin(), samples.end()});
  if (tenants.size() < 2) return out;
  std::vector<std::vector<BenchSample>> by_tenant(tenants.size());
  for (const BenchSample& s : samples) by_tenant[static_cast<size_t>(s.tenant)].push_back(s);
  for (size_t t = 0; t < tenants.size(); ++t) out += Row(tenants[t], by_tenant[t]);
  return out;
}

std::string BenchPlot(std::span<const BenchSample> samples) {
  std::map<int, int64_t> counts;  // by thirds of decades of a millisecond
  for (const BenchSample& s : samples) {
    if (!s.ok) continue;
    const double ms = std::max(static_cast<double>(s.latency_ns()) * 1e-6, 1e-6);
    ++counts[static_cast<int>(std::floor(std::log10(ms) * kBarsOfDecade))];
  }
  if (counts.empty()) return "";
  int64_t most = 0;
  for (const auto& [bar, n] : counts) most = std::max(most, n);
  std::string out;
  for (int bar = counts.begin()->first; bar <= counts.rbegin()->first; ++bar) {
    const int64_t n = counts.contains(bar) ? counts.at(bar) : 0;
    char line[64];
    std::snprintf(line, sizeof(line), "%10.3f ms %10" PRId64 " ",
                  std::pow(10, static_cast<double>(bar) / kBarsOfDecade), n);
    const auto width = static_cast<size_t>((n * kBarWidth + most - 1) / most);
    StrAppend(&out, line, std::string(width, '#'), "\n");
  }
  return out;
}

std::string BenchCsv(std::span<const BenchSample> samples, std::span<const std::string> tenants) {
  const int64_t first = samples.empty() ? 0 : FirstDue(samples);
  std::string out = "tenant,session,due_ns,end_ns,ok\n";
  for (const BenchSample& s : samples) {
    StrAppend(&out, tenants[static_cast<size_t>(s.tenant)], ",", s.session, ",", s.due_ns - first,
              ",", s.end_ns - first, ",", s.ok ? 1 : 0, "\n");
  }
  return out;
}

}  // namespace telegrad::cli
