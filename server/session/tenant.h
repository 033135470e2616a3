// Who pays and who sees what: a tenant's accounts, the graphs that it has put and the engine that
// keeps its executables. Nobody else's sessions reach any of them.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "engine/base/account.h"
#include "server/admin/metrics.h"
#include "server/session/engine.h"
#include "server/session/graph_store.h"
#include "server/session/quotas.h"

namespace telegrad {

// One for each quota. Shared, because memory that is in use outlives the tenant's last session.
class Accounts {
 public:
  // `remedy` says how to raise a quota; the quota's name is appended in its place, "NAME".
  Accounts(std::string_view tenant, const Quotas& quotas, std::string_view remedy);
  Account& operator[](Quota quota) const { return *shared(quota); }
  const std::shared_ptr<Account>& shared(Quota quota) const {
    return accounts_[static_cast<size_t>(quota)];
  }

 private:
  std::array<std::shared_ptr<Account>, kNumQuotas> accounts_;
};

struct Tenant {
  Tenant(std::string name, Accounts accounts, std::shared_ptr<Engine> engine, Metrics* metrics);
  // With the defaults as limits.
  Tenant(std::string name, std::shared_ptr<Engine> engine, Metrics* metrics);

  const std::string name;
  const Accounts accounts;
  const std::shared_ptr<Engine> engine;
  GraphStore graphs;
};

}  // namespace telegrad
