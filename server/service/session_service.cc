// Agrees on versions with a client and answers questions about devices and counters; keep-alive
// and close find the session by its token.
#include "server/service/session_service.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "devices/api/preparing_queue.h"
#include "engine/base/status.h"
#include "engine/compile/ptxas.h"
#include "engine/wire/compression.h"
#include "proto/transport.h"
#include "server/admin/log.h"
#include "server/data/peers.h"
#include "server/service/convert.h"
#include "server/tenant/tenant_metrics.h"

namespace telegrad {
namespace {

// The highest version that both ranges hold.
absl::StatusOr<uint32_t> Agree(std::string_view what, const v1::VersionRange& client, uint32_t min,
                               uint32_t max) {
  const uint32_t version = std::min(client.max(), max);
  if (version < std::max(client.min(), min)) {
    return FailedPrecondition("no common version of the ", what, ": the client supports ",
                              client.min(), " to ", client.max(), ", this server ", min, " to ",
                              max);
  }
  return version;
}

absl::Status Negotiate(const v1::HelloRequest& request, v1::HelloResponse* response) {
  TG_ASSIGN_OR_RETURN(const uint32_t protocol,
                      Agree("protocol", request.protocol(), kProtocolMin, kProtocolMax));
  TG_ASSIGN_OR_RETURN(const uint32_t form,
                      Agree("graph form", request.graph_form(), kGraphFormMin, kGraphFormMax));
  response->set_protocol(protocol);
  response->set_graph_form(form);
  response->set_server("telegradd");
  response->set_max_message_bytes(kMaxMessageBytes);
  response->set_chunk_bytes(kChunkBytes);
  for (const CompressionMethod& method : CompressionMethods()) {
    response->add_compressions(method.number);
  }
  return absl::OkStatus();
}

// A client cannot connect to "any address"; the host that it came by is one of them.
std::string Told(std::string_view address) {
  for (const std::string_view any : {"0.0.0.0:", "[::]:"}) {
    if (address.starts_with(any)) address.remove_prefix(any.size() - 1);
  }
  return std::string(address);
}

}  // namespace

void SessionService::SetDataAddress(std::string_view address) { data_address_ = Told(address); }
void SessionService::SetBulkAddress(std::string_view address) { bulk_address_ = Told(address); }

absl::Status SessionService::Hello(const Caller& caller, const v1::HelloRequest& request,
                                   v1::HelloResponse* response) {
  absl::Status status = Negotiate(request, response);
  response->set_epoch(registry_.epoch());
  response->set_tenant(caller.principal.tenant);
  response->set_data_address(data_address_);
  response->set_bulk_address(bulk_address_);
  response->set_binds_parts(true);
  response->set_copies(true);
  // A message in which a client gathers operations is shorter than this.
  response->set_gathers(env_.limits.head_bytes >= 2 * kGatheredBytes);
  response->set_operation_sockets(!bulk_address_.empty());
  response->set_searches(caller.tenant->engine->searches());
  response->set_local_socket(local_socket_);
  if (env_.peers != nullptr) {
    response->set_peer_key(env_.peers->public_key());
    const auto& peers = env_.peers->allowed();
    response->mutable_peers()->Add(peers.begin(), peers.end());
  }
  Log(LogLevel::kDebug, "hello",
      {{"peer", caller.peer},
       {"subject", caller.principal.subject},
       {"client", Clip(request.client(), kMaxLogged)},
       {"status", status.ToString()}});
  return status;
}

// Of a GPU of NVIDIA's: who makes its code. Of another server's device: what that server says after
// the width of its vectors.
static std::string CodeOf(const Device& device) {
  const Target& target = device.target();
  if (device.link()) return target.features;
  if (!target.arch.starts_with("sm_")) return "";
  const auto assembler = AssemblerOf(target);
  return StrCat(", code by ", assembler ? Describe(*assembler) : "the driver");
}

absl::Status SessionService::ListDevices(const Caller& caller, const v1::ListDevicesRequest&,
                                         v1::ListDevicesResponse* response) {
  for (const auto& device : env_.devices->devices()) {
    const Tenant& tenant = *caller.tenant;
    const bool granted =
        tenant.MayUse(*device, /*write=*/false).ok() || tenant.MayUse(*device, /*write=*/true).ok();
    if (!granted && !caller.principal.admin) continue;
    v1::Device* out = response->add_devices();
    const Target& target = device->target();
    // As the caller has it: another tenant's process, or session with another server, may be lost.
    const Device& own_view = *caller.tenant->KnownView(*device);
    absl::Status health = device->Health();
    if (health.ok()) health = own_view.Health();
    out->set_name(device->name());
    out->set_target(StrCat(target.arch, target.cpu.empty() ? "" : " ", target.cpu, ", ",
                           target.vector_bytes * 8, "-bit vectors", CodeOf(*device)));
    const Account& paid = caller.tenant->accounts[Quota::kDeviceMemory];
    const bool all = caller.principal.admin;
    out->set_memory_limit(static_cast<uint64_t>(
        all ? device->memory_limit() : std::min(device->memory_limit(), paid.limit())));
    out->set_memory_used(static_cast<uint64_t>(all ? device->memory_used() : paid.used()));
    out->set_threads(static_cast<uint32_t>(target.threads));
    const std::string_view name = device->name();
    const std::string_view own = name.substr(name.rfind('/') + 1);
    std::string kind(own.substr(0, own.find(':')));
    std::ranges::transform(kind, kind.begin(), [](char c) { return std::tolower(c); });
    out->set_kind(kind);
    if (const auto link = device->link()) {
      out->set_remote(true);
      out->set_round_trip_ns(static_cast<uint64_t>(link->round_trip_ns));
      out->set_bytes_per_second(link->bytes_per_second);
    }
    const ArithmeticRates rates = device->rates().flops;
    for (const ArithmeticInfo& row : kArithmetics) {
      if (rates[row.arithmetic] <= 0) continue;
      v1::OperationRate* rate = out->add_rates();
      rate->set_kind(std::string(row.text));
      rate->set_per_second(rates[row.arithmetic]);
    }
    out->set_generation(own_view.generation());
    out->set_memory_generation(own_view.memory_generation());
    out->set_of_tenant(AsksProcess(*device));
    out->set_healthy(health.ok());
    if (!health.ok()) {
      out->set_health(health.ToString(absl::StatusToStringMode::kWithNoExtraData));
    }
  }
  if (!caller.principal.admin) return absl::OkStatus();
  for (const std::string& note : env_.devices->notes()) response->add_notes(note);
  return absl::OkStatus();
}

// What the daemon does for all of them is for administrators.
absl::Status SessionService::Stats(const Caller& caller, const v1::StatsRequest&,
                                   v1::StatsResponse* response) {
  auto& values = *response->mutable_values();
  if (!caller.principal.admin) {
    for (const auto& [name, value] : MetricsOf(*caller.tenant)) values[name] = value;
    return absl::OkStatus();
  }
  const auto all = env_.metrics->Values();
  for (int i = 0; i < kNumMetrics; ++i) values[std::string(AllMetrics()[i].name)] = all[i];
  return absl::OkStatus();
}

absl::Status SessionService::KeepAlive(const Caller& caller, const v1::KeepAliveRequest& request,
                                       v1::KeepAliveResponse* response) {
  TG_ASSIGN_OR_RETURN(const auto session,
                      registry_.KeepAlive(request.token(), request.epoch(), *caller.tenant));
  response->set_lease_ms(static_cast<uint32_t>(registry_.Describe(*session).lease_ms));
  response->set_last_op_id(session->last_operation());
  const WorkProgress::State compiling = session->compiling();
  response->set_kernels_compiled(static_cast<uint64_t>(compiling.done));
  response->set_kernels_to_compile(static_cast<uint64_t>(compiling.total));
  return absl::OkStatus();
}

// What is not there (any more) is closed.
absl::Status SessionService::Close(const Caller& caller, const v1::CloseRequest& request,
                                   v1::CloseResponse*) {
  const auto session = registry_.Find(request.token(), request.epoch(), *caller.tenant);
  if (session.ok()) {
    registry_.Close(*session, absl::CancelledError("the client closed the session"));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
