// The metrics of each tenant: its quotas, and its share of some of the daemon's counters.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/admin/metrics.h"
#include "server/pool/device_pool.h"
#include "server/tenant/tenant_directory.h"

namespace telegrad {

// The counters that are kept for each tenant, too.
std::span<const Metric> MetricsOfTenants();

// For the Prometheus page, with the labels tenant and quota. Dropped tenants are not listed.
std::vector<LabelledMetric> MetricsByTenant(const TenantDirectory& tenants);

// Likewise with the labels device and queue.
std::vector<LabelledMetric> MetricsByDevice(const DevicePool& pool);

// What a caller is told of its own tenant: the same counters, under the names that they have for
// the whole daemon, and of each quota the limit and what is used.
std::vector<std::pair<std::string, double>> MetricsOf(const Tenant& tenant);

}  // namespace telegrad
