// Who pays and who sees what: graphs are found only by the tenant that has put them.
#pragma once

#include <string>
#include <utility>

#include "server/admin/metrics.h"
#include "server/session/graph_store.h"
#include "server/session/limits.h"

namespace telegrad {

struct Tenant {
  Tenant(std::string name, const SessionLimits& limits, Metrics* metrics)
      : name(std::move(name)), graphs(limits, metrics) {}
  const std::string name;
  GraphStore graphs;
};

}  // namespace telegrad
