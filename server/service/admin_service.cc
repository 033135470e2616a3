#include "server/service/admin_service.h"

#include <algorithm>
#include <string>

#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

// What was done and by whom.
template <typename... Fields>
void LogDone(const Caller& caller, const char* what, const Fields&... fields) {
  Log(LogLevel::kInfo, what,
      {{"subject", caller.principal.subject}, {"peer", caller.peer}, fields...});
}

}  // namespace

absl::Status AdminService::Drain(const Caller& caller, const v1::DrainRequest&,
                                 v1::DrainResponse*) {
  LogDone(caller, "admin_drain");
  drain_();
  return absl::OkStatus();
}

absl::Status AdminService::ListSessions(const Caller&, const v1::ListSessionsRequest& request,
                                        v1::ListSessionsResponse* response) {
  const int64_t now = env_.clock->Ns();
  for (const auto& session : sessions_.All()) {
    if (!request.tenant().empty() && session->tenant().name != request.tenant()) continue;
    v1::SessionInfo* info = response->add_sessions();
    info->set_session(session->terms().id);
    info->set_tenant(session->tenant().name);
    info->set_resumable(session->terms().resumable);
    info->set_last_op_id(session->last_operation());
    if (const int64_t ends = session->EndsAt(); ends != INT64_MAX) {
      info->set_ends_in_ms(static_cast<uint64_t>(std::max<int64_t>(ends - now, 0) / 1'000'000));
    }
  }
  return absl::OkStatus();
}

absl::Status AdminService::CloseSessions(const Caller& caller,
                                         const v1::CloseSessionsRequest& request,
                                         v1::CloseSessionsResponse* response) {
  if ((request.session() != 0) == !request.tenant().empty()) {
    return InvalidArgument("expected either a session or a tenant");
  }
  uint64_t closed = 0;
  for (const auto& session : sessions_.All()) {
    if (session->terms().id != request.session() && session->tenant().name != request.tenant()) {
      continue;
    }
    sessions_.Close(session, absl::AbortedError("an administrator closed this session"));
    ++closed;
  }
  LogDone(caller, "admin_close_sessions", LogField{"session", request.session()},
          LogField{"tenant", request.tenant()}, LogField{"closed", closed});
  response->set_closed(closed);
  return absl::OkStatus();
}

absl::Status AdminService::ListTenants(const Caller&, const v1::ListTenantsRequest&,
                                       v1::ListTenantsResponse* response) {
  for (const auto& tenant : tenants_.All()) {
    v1::TenantInfo* info = response->add_tenants();
    info->set_tenant(tenant->name);
    for (int i = 0; i < kNumQuotas; ++i) {
      const Account& account = tenant->accounts[static_cast<Quota>(i)];
      v1::QuotaUse* use = info->add_quotas();
      use->set_name(std::string(AllQuotas()[i].name));
      use->set_used(static_cast<uint64_t>(account.used()));
      use->set_limit(static_cast<uint64_t>(account.limit()));
      use->set_refused(static_cast<uint64_t>(account.refused()));
    }
  }
  return absl::OkStatus();
}

absl::Status AdminService::SetLogLevel(const Caller& caller, const v1::SetLogLevelRequest& request,
                                       v1::SetLogLevelResponse*) {
  const auto level = LogLevelFromText(request.level());
  if (!level) {
    return InvalidArgument("\"", request.level(),
                           "\" is not one of debug, info, warning, error, off");
  }
  telegrad::SetLogLevel(*level);
  LogDone(caller, "admin_log_level", LogField{"level", request.level()});
  return absl::OkStatus();
}

}  // namespace telegrad
