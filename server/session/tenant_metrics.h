// The metrics of each tenant: its quotas, and its share of some of the daemon's counters.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/admin/metrics.h"
#include "server/session/tenant_directory.h"

namespace telegrad {

// The counters that are kept for each tenant, too.
std::span<const Metric> MetricsOfTenants();

// For the Prometheus page, with the labels tenant and quota. Dropped tenants are not listed.
std::vector<LabelledMetric> MetricsByTenant(const TenantDirectory& tenants);

// The metrics that a caller gets of its own tenant: the same counters, under the names that they
// have for the whole daemon, and the limit and the use of each quota.
std::vector<std::pair<std::string, double>> MetricsOf(const Tenant& tenant);

}  // namespace telegrad
