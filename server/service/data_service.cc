// Makes a DataCall for each stream, and carries out the calls about uploads and tickets at the
// session that they name.
#include "server/service/data_service.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/net/own_certificate.h"
#include "server/data/peers.h"
#include "server/service/compute_service.h"

namespace telegrad {

RawStream* DataService::Transfer(grpc::ServerContextBase*, Caller caller) {
  const Tenant* const tenant = caller.tenant.get();
  const int64_t quota = tenant->accounts[Quota::kSessions].limit();
  const auto call = DataCall::Create(registry_, env_.metrics, std::move(caller));
  // Those that every session may have, whether or not they have said yet whose they are.
  const int64_t most = Transfers::kStreams * env_.limits.sessions;
  const int64_t most_of_one = Transfers::kStreams * std::min(quota, env_.limits.sessions);
  OpenCalls<DataCall>::CallSlot slot = calls_.Enter(call, most, tenant, most_of_one);
  absl::Status refused;
  if (!slot) {
    refused = ResourceExhausted("this server has ", most, " streams of transfers, or its tenant ",
                                most_of_one, ": ", Transfers::kStreams,
                                " for each of the sessions that they may have; raise "
                                "--max-sessions, which is ",
                                env_.limits.sessions, ", or its quota of sessions");
  }
  call->Start(std::move(slot), refused);
  return call.get();  // it owns itself until OnDone, which gRPC calls after this has returned
}

absl::Status DataService::StatUpload(const Caller& caller, const v1::StatUploadRequest& request,
                                     v1::StatUploadResponse* response) {
  TG_ASSIGN_OR_RETURN(const auto session,
                      registry_.Find(request.token(), request.epoch(), *caller.tenant));
  TG_ASSIGN_OR_RETURN(const Upload::State state, session->transfers().Stat(request.transfer()));
  response->set_bytes(state.bytes);
  for (const ByteRange& range : state.missing) {
    v1::ByteRange& out = *response->add_missing();
    out.set_offset(range.offset);
    out.set_bytes(range.bytes);
  }
  return absl::OkStatus();
}

absl::Status DataService::AdmitBulk(const Caller& caller, const v1::AdmitBulkRequest& request,
                                    v1::AdmitBulkResponse* response) {
  if (bulk_ == nullptr) {
    return Unimplemented("this server has no bulk sockets; start it with --bulk-listen");
  }
  TG_ASSIGN_OR_RETURN(const auto session,
                      registry_.Find(request.token(), request.epoch(), *caller.tenant));
  if (!request.peer_key().empty()) {
    if (env_.peers == nullptr) return Unimplemented("this server receives from no others");
    TG_ASSIGN_OR_RETURN(Peers::Ticket ticket,
                        env_.peers->Admit(session, request.peer_key(), request.bytes(),
                                          int64_t{request.lifetime_ms()}, request.request()));
    response->set_identity(std::move(ticket.key.identity));
    response->set_secret(std::move(ticket.key.secret));
    response->set_tls(ticket.tls);
    response->set_lifetime_ms(static_cast<uint32_t>(ticket.lifetime_ms));
    response->set_transfer(ticket.transfer);
    return absl::OkStatus();
  }
  BulkTickets::ServeOperations operations;
  if (request.operations()) {
    // Said now, and not to a session that has left its call for the socket.
    TG_RETURN_IF_ERROR(
        Reservation::Take(caller.tenant->accounts.shared(Quota::kStreams), 1).status());
    operations = [this, caller](const auto& socket) { return compute_.ExecuteOn(socket, caller); };
  }
  TG_ASSIGN_OR_RETURN(PresharedKey key, bulk_->Admit(session, std::move(operations)));
  response->set_identity(std::move(key.identity));
  response->set_secret(std::move(key.secret));
  response->set_tls(bulk_->tls());
  if (const OwnCertificate* own = bulk_->tls() ? OwnCertificate::OfProcess() : nullptr) {
    response->set_certificate_sha256(own->sha256());
  }
  response->set_lifetime_ms(BulkTickets::kLifetimeMs);
  return absl::OkStatus();
}

}  // namespace telegrad
