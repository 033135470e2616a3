// Each method is one unary call of telegrad.v1.Admin, whose messages are turned into plain
// structs.
#include "client/cc/admin.h"

#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "grpcpp/grpcpp.h"
#include "telegrad/v1/admin.grpc.pb.h"

namespace telegrad {
namespace {

// One call of Admin: v1::METHODRequest to v1::METHODResponse.
template <typename Request, typename Response>
using AdminMethod = grpc::Status (v1::Admin::Stub::*)(grpc::ClientContext*, const Request&,
                                                      Response*);

template <typename Request, typename Response>
absl::StatusOr<Response> CallAdmin(Connection& connection, AdminMethod<Request, Response> method,
                                   const Request& request) {
  const auto stub = v1::Admin::NewStub(connection.channel());
  grpc::ClientContext context;
  TG_RETURN_IF_ERROR(connection.Authorize(&context));
  context.set_deadline(absl::ToChronoTime(absl::Now() + connection.options().timeout));
  Response response;
  const grpc::Status status = (stub.get()->*method)(&context, request, &response);
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(
        StrCat(status.error_message(), "; ", connection.address(),
               " serves no administrators: start the daemon with --admin-listen ADDRESS, and name "
               "that address with --address"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

absl::StatusOr<std::vector<SessionUse>> AdminClient::Sessions(const std::string& tenant) {
  v1::ListSessionsRequest request;
  request.set_tenant(tenant);
  TG_ASSIGN_OR_RETURN(const auto response,
                      CallAdmin(*connection_, &v1::Admin::Stub::ListSessions, request));
  std::vector<SessionUse> out;
  for (const v1::SessionInfo& info : response.sessions()) {
    SessionUse& row = out.emplace_back(SessionUse{.session = info.session(),
                                                  .tenant = info.tenant(),
                                                  .resumable = info.resumable(),
                                                  .last_operation = info.last_op_id(),
                                                  .ends_in_ms = std::nullopt});
    if (info.has_ends_in_ms()) row.ends_in_ms = info.ends_in_ms();
  }
  return out;
}

absl::StatusOr<uint64_t> AdminClient::CloseSessions(uint64_t session, const std::string& tenant) {
  v1::CloseSessionsRequest request;
  request.set_session(session);
  request.set_tenant(tenant);
  TG_ASSIGN_OR_RETURN(const auto response,
                      CallAdmin(*connection_, &v1::Admin::Stub::CloseSessions, request));
  return response.closed();
}

absl::StatusOr<std::vector<TenantUse>> AdminClient::Tenants() {
  TG_ASSIGN_OR_RETURN(const auto response, CallAdmin(*connection_, &v1::Admin::Stub::ListTenants,
                                                     v1::ListTenantsRequest()));
  std::vector<TenantUse> out;
  for (const v1::TenantInfo& info : response.tenants()) {
    TenantUse& row = out.emplace_back(TenantUse{.tenant = info.tenant(), .quotas = {}});
    for (const v1::QuotaUse& use : info.quotas()) {
      row.quotas.push_back({use.name(), use.used(), use.limit(), use.refused()});
    }
  }
  return out;
}

absl::StatusOr<std::vector<DeviceQueueUse>> AdminClient::Queues() {
  TG_ASSIGN_OR_RETURN(const auto response, CallAdmin(*connection_, &v1::Admin::Stub::ListQueues,
                                                     v1::ListQueuesRequest()));
  std::vector<DeviceQueueUse> out;
  for (const v1::QueueInfo& info : response.queues()) {
    DeviceQueueUse& row = out.emplace_back(DeviceQueueUse{.device = info.device(),
                                                          .queue = info.queue(),
                                                          .healthy = info.healthy(),
                                                          .drained = info.drained(),
                                                          .tenants = {}});
    for (const v1::QueueUse& use : info.tenants()) {
      row.tenants.push_back({use.tenant(), use.works(), static_cast<double>(use.debt_ns()) / 1e6});
    }
  }
  return out;
}

absl::StatusOr<std::vector<DaemonThread>> AdminClient::Threads() {
  TG_ASSIGN_OR_RETURN(const auto response, CallAdmin(*connection_, &v1::Admin::Stub::ListThreads,
                                                     v1::ListThreadsRequest()));
  std::vector<DaemonThread> out;
  for (const v1::ThreadInfo& info : response.threads()) {
    out.push_back({.id = info.id(),
                   .name = info.name(),
                   .state = info.state(),
                   .cpu_seconds = static_cast<double>(info.cpu_ns()) / 1e9});
  }
  return out;
}

absl::StatusOr<std::string> AdminClient::Spans() {
  TG_ASSIGN_OR_RETURN(auto response,
                      CallAdmin(*connection_, &v1::Admin::Stub::ListSpans, v1::ListSpansRequest()));
  return std::move(*response.mutable_chrome_json());
}

absl::Status AdminClient::SetLogLevel(const std::string& level) {
  v1::SetLogLevelRequest request;
  request.set_level(level);
  return CallAdmin(*connection_, &v1::Admin::Stub::SetLogLevel, request).status();
}

absl::StatusOr<std::vector<std::string>> AdminClient::Reload() {
  TG_ASSIGN_OR_RETURN(const auto response,
                      CallAdmin(*connection_, &v1::Admin::Stub::Reload, v1::ReloadRequest()));
  return std::vector<std::string>(response.restart_needed().begin(),
                                  response.restart_needed().end());
}

absl::StatusOr<uint64_t> AdminClient::DrainDevice(const std::string& device, bool takes_work) {
  v1::DrainDeviceRequest request;
  request.set_device(device);
  request.set_takes_work(takes_work);
  TG_ASSIGN_OR_RETURN(const auto response,
                      CallAdmin(*connection_, &v1::Admin::Stub::DrainDevice, request));
  return response.works();
}

absl::Status AdminClient::Drain() {
  return CallAdmin(*connection_, &v1::Admin::Stub::Drain, v1::DrainRequest()).status();
}

}  // namespace telegrad
