// Each method reads or changes the part of the daemon that it is about; changes are logged with
// the caller.
#include "server/service/admin_service.h"

#include <algorithm>
#include <string>

#include "engine/base/status.h"
#include "server/admin/log.h"
#include "server/admin/threads.h"

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

absl::Status AdminService::ListQueues(const Caller&, const v1::ListQueuesRequest&,
                                      v1::ListQueuesResponse* response) {
  for (const auto& device : devices_.devices()) {
    for (const auto& [name, queue] : devices_.QueuesOf(*device)) {
      v1::QueueInfo* info = response->add_queues();
      info->set_device(device->name());
      info->set_queue(std::string(name));
      info->set_healthy(device->Health().ok());
      info->set_drained(!devices_.CheckTakesWork(*device).ok());
      for (const FairQueue::Waiting& row : queue->Who()) {
        v1::QueueUse* use = info->add_tenants();
        use->set_tenant(row.tenant);
        use->set_works(static_cast<uint64_t>(row.works));
        use->set_debt_ns(static_cast<uint64_t>(row.debt_ns));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AdminService::ListSpans(const Caller&, const v1::ListSpansRequest&,
                                     v1::ListSpansResponse* response) {
  if (env_.tracer != nullptr) response->set_chrome_json(env_.tracer->ChromeJson());
  return absl::OkStatus();
}

absl::Status AdminService::ListThreads(const Caller&, const v1::ListThreadsRequest&,
                                       v1::ListThreadsResponse* response) {
  for (ThreadUse& thread : ThreadsOfThisProcess()) {
    v1::ThreadInfo* info = response->add_threads();
    info->set_id(thread.id);
    info->set_name(std::move(thread.name));
    info->set_cpu_ns(thread.cpu_ns);
    info->set_state(std::string(1, thread.state));
  }
  return absl::OkStatus();
}

absl::Status AdminService::DrainDevice(const Caller& caller, const v1::DrainDeviceRequest& request,
                                       v1::DrainDeviceResponse* response) {
  if (request.device().empty()) return InvalidArgument("expected the name of a device");
  TG_ASSIGN_OR_RETURN(Device * device, devices_.Find(request.device()));
  devices_.SetTakesWork(*device, request.takes_work());
  LogDone(caller, "admin_drain_device", LogField{"device", device->name()},
          LogField{"takes_work", request.takes_work() ? "true" : "false"});
  uint64_t works = 0;
  for (const auto& [name, queue] : devices_.QueuesOf(*device)) {
    works += static_cast<uint64_t>(queue->works());
  }
  response->set_works(works);
  return absl::OkStatus();
}

absl::Status AdminService::Reload(const Caller& caller, const v1::ReloadRequest&,
                                  v1::ReloadResponse* response) {
  LogDone(caller, "admin_reload");
  TG_ASSIGN_OR_RETURN(const auto waiting, reloader_.Reload());
  response->mutable_restart_needed()->Add(waiting.begin(), waiting.end());
  return absl::OkStatus();
}

}  // namespace telegrad
