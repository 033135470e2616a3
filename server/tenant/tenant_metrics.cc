// Which counters are kept for each tenant, and how quotas, device times and queues become
// labelled metrics.
#include "server/tenant/tenant_metrics.h"

#include <memory>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

constexpr Metric kOfTenants[] = {
    Metric::kOperations, Metric::kOperationErrors, Metric::kBytesWritten,
    Metric::kBytesRead,  Metric::kGraphPuts,       Metric::kRuns,
    Metric::kRunsCached, Metric::kRunNs,
};

// The figures of an account that are shown.
constexpr struct {
  std::string_view name;
  MetricInfo::Kind kind;
  std::string_view help;
  int64_t (*value)(const Account&);
} kOfQuotas[] = {
    {"telegrad_tenant_used", MetricInfo::kGauge, "What a tenant has in use of a quota",
     [](const Account& account) { return account.used(); }},
    {"telegrad_tenant_limit", MetricInfo::kGauge, "A tenant's quota",
     [](const Account& account) { return account.limit(); }},
    {"telegrad_tenant_refused_total", MetricInfo::kCounter,
     "Requests refused because they would have passed a quota",
     [](const Account& account) { return account.refused(); }},
};

constexpr std::string_view kPrefix = "telegrad_";

}  // namespace

std::span<const Metric> MetricsOfTenants() { return kOfTenants; }

std::vector<LabelledMetric> MetricsByTenant(const TenantDirectory& tenants) {
  const std::vector<std::shared_ptr<Tenant>> all = tenants.All();
  std::vector<LabelledMetric> metrics;
  for (const auto& row : kOfQuotas) {
    LabelledMetric& metric = metrics.emplace_back(LabelledMetric{
        .name = std::string(row.name), .kind = row.kind, .help = std::string(row.help)});
    for (const auto& tenant : all) {
      for (size_t q = 0; q < AllQuotas().size(); ++q) {
        const Account& account = tenant->accounts[static_cast<Quota>(q)];
        metric.samples.push_back(
            {.labels = {{"tenant", tenant->name}, {"quota", std::string(AllQuotas()[q].name)}},
             .value = static_cast<double>(row.value(account))});
      }
    }
  }
  for (const Metric which : kOfTenants) {
    const MetricInfo& info = AllMetrics()[static_cast<size_t>(which)];
    LabelledMetric& metric = metrics.emplace_back(
        LabelledMetric{.name = StrCat(kPrefix, "tenant_", info.name.substr(kPrefix.size())),
                       .kind = info.kind,
                       .help = StrCat(info.help, ", by tenant")});
    for (const auto& tenant : all) {
      metric.samples.push_back(
          {.labels = {{"tenant", tenant->name}}, .value = tenant->metrics.Value(which)});
    }
  }
  LabelledMetric& latency = metrics.emplace_back(
      LabelledMetric{.name = StrCat(kPrefix, "tenant_run_latency_seconds"),
                     .kind = MetricInfo::kHistogram,
                     .help = "Time from the arrival of a run to its end, by tenant"});
  for (const auto& tenant : all) {
    latency.samples.push_back({.labels = {{"tenant", tenant->name}},
                               .histogram = tenant->run_latency.Read(),
                               .exemplars = tenant->run_latency.exemplars()});
  }
  return metrics;
}

std::vector<LabelledMetric> MetricsByDevice(const DevicePool& pool) {
  LabelledMetric wait{.name = StrCat(kPrefix, "queue_wait_seconds"),
                      .kind = MetricInfo::kHistogram,
                      .help = "Time that a run or copy waited for its turn on a device, by device"};
  LabelledMetric run{.name = StrCat(kPrefix, "queue_run_seconds"),
                     .kind = MetricInfo::kHistogram,
                     .help = "Time that a run or copy ran on a device, by device"};
  LabelledMetric waiting{.name = StrCat(kPrefix, "queue_works"),
                         .kind = MetricInfo::kGauge,
                         .help = "Runs and copies that wait for a device or run there, by device"};
  for (const auto& device : pool.devices()) {
    for (const auto& [name, queue] : pool.QueuesOf(*device)) {
      const std::vector<std::pair<std::string, std::string>> labels = {
          {"device", device->name()}, {"queue", std::string(name)}};
      wait.samples.push_back({.labels = labels,
                              .histogram = queue->wait_time().Read(),
                              .exemplars = queue->wait_time().exemplars()});
      run.samples.push_back({.labels = labels,
                             .histogram = queue->run_time().Read(),
                             .exemplars = queue->run_time().exemplars()});
      waiting.samples.push_back({.labels = labels, .value = static_cast<double>(queue->works())});
    }
  }
  return {std::move(wait), std::move(run), std::move(waiting)};
}

std::vector<std::pair<std::string, double>> MetricsOf(const Tenant& tenant) {
  std::vector<std::pair<std::string, double>> values;
  for (const Metric which : kOfTenants) {
    values.emplace_back(AllMetrics()[static_cast<size_t>(which)].name, tenant.metrics.Value(which));
  }
  for (const auto& row : kOfQuotas) {
    for (size_t q = 0; q < AllQuotas().size(); ++q) {
      values.emplace_back(StrCat(row.name, "{quota=\"", AllQuotas()[q].name, "\"}"),
                          static_cast<double>(row.value(tenant.accounts[static_cast<Quota>(q)])));
    }
  }
  return values;
}

}  // namespace telegrad
