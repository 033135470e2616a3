// telegrad.v1.Admin: the methods for administrators.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "server/service/configuration.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "server/tenant/tenant_directory.h"
#include "telegrad/v1/admin.pb.h"

namespace telegrad {

class AdminService {
 public:
  // `drain` begins the daemon's end and returns at once.
  AdminService(const Environment& env, SessionRegistry& sessions, const TenantDirectory& tenants,
               DevicePool& devices, Reloader& reloader, std::function<void()> drain)
      : env_(env),
        devices_(devices),
        sessions_(sessions),
        tenants_(tenants),
        reloader_(reloader),
        drain_(std::move(drain)) {}

  absl::Status Drain(const Caller& caller, const v1::DrainRequest& request,
                     v1::DrainResponse* response);
  absl::Status ListSessions(const Caller& caller, const v1::ListSessionsRequest& request,
                            v1::ListSessionsResponse* response);
  absl::Status CloseSessions(const Caller& caller, const v1::CloseSessionsRequest& request,
                             v1::CloseSessionsResponse* response);
  absl::Status ListTenants(const Caller& caller, const v1::ListTenantsRequest& request,
                           v1::ListTenantsResponse* response);
  absl::Status SetLogLevel(const Caller& caller, const v1::SetLogLevelRequest& request,
                           v1::SetLogLevelResponse* response);
  absl::Status Reload(const Caller& caller, const v1::ReloadRequest& request,
                      v1::ReloadResponse* response);
  absl::Status ListQueues(const Caller& caller, const v1::ListQueuesRequest& request,
                          v1::ListQueuesResponse* response);
  absl::Status ListSpans(const Caller& caller, const v1::ListSpansRequest& request,
                         v1::ListSpansResponse* response);
  absl::Status ListThreads(const Caller& caller, const v1::ListThreadsRequest& request,
                           v1::ListThreadsResponse* response);
  absl::Status DrainDevice(const Caller& caller, const v1::DrainDeviceRequest& request,
                           v1::DrainDeviceResponse* response);

 private:
  const Environment& env_;
  DevicePool& devices_;
  SessionRegistry& sessions_;
  const TenantDirectory& tenants_;
  Reloader& reloader_;
  const std::function<void()> drain_;
};

}  // namespace telegrad
