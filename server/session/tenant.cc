#include "server/session/tenant.h"

#include <utility>

#include "engine/base/strings.h"

namespace telegrad {

Accounts::Accounts(std::string_view tenant, const Quotas& quotas, std::string_view remedy) {
  for (int q = 0; q < kNumQuotas; ++q) {
    const std::string_view name = AllQuotas()[static_cast<size_t>(q)].name;
    std::string how(remedy);
    if (const size_t at = how.find("NAME"); at != std::string::npos) how.replace(at, 4, name);
    accounts_[static_cast<size_t>(q)] = std::make_shared<Account>(
        StrCat(name, " of tenant ", tenant), quotas[static_cast<Quota>(q)], std::move(how));
  }
}

Tenant::Tenant(std::string n, Accounts a, std::shared_ptr<Engine> e, Metrics* metrics)
    : name(std::move(n)),
      accounts(std::move(a)),
      engine(std::move(e)),
      graphs(accounts.shared(Quota::kGraphs), accounts.shared(Quota::kGraphBytes), metrics) {}

Tenant::Tenant(std::string n, std::shared_ptr<Engine> e, Metrics* metrics)
    : Tenant(n, Accounts(n, Quotas(), "--default-quota NAME=VALUE raises it"), std::move(e),
             metrics) {}

}  // namespace telegrad
