#include "client/cc/bulk_socket.h"

#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "engine/net/frames.h"
#include "engine/net/proof.h"
#include "engine/net/psk_tls.h"
#include "engine/net/tcp.h"
#include "proto/transport.h"
#include "telegrad/v1/data.grpc.pb.h"

namespace telegrad {
namespace {

absl::Status Cancelled() { return absl::CancelledError("the session has ended"); }

}  // namespace

void BulkSocketOpener::Cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  if (call_ != nullptr) call_->TryCancel();
  if (socket_ != nullptr) socket_->Shutdown();
}

absl::StatusOr<v1::AdmitBulkResponse> BulkSocketOpener::GetTicket(Connection& connection,
                                                                  const SessionTicket& session,
                                                                  bool operations) {
  v1::AdmitBulkRequest request;
  request.set_token(session.token);
  request.set_epoch(session.epoch);
  request.set_operations(operations);
  v1::AdmitBulkResponse ticket;
  const auto call = std::make_shared<grpc::ClientContext>();
  TG_RETURN_IF_ERROR(connection.Authorize(call.get()));
  call->set_deadline(absl::ToChronoTime(absl::Now() + connection.options().timeout));
  {
    const MutexLock lock(mutex_);
    if (cancelled_) return Cancelled();
    call_ = call;
  }
  const grpc::Status admitted =
      v1::Data::NewStub(connection.channel())->AdmitBulk(call.get(), request, &ticket);
  if (!admitted.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(admitted.error_code()),
                        admitted.error_message());
  }
  // Some of it is said before the other end has proved who it is.
  if (ticket.identity().size() != kIdentityBytes || ticket.secret().size() != kSecretBytes) {
    return Internal("a ticket of ", ticket.identity().size(), " and ", ticket.secret().size(),
                    " bytes, expected ", kIdentityBytes, " and ", kSecretBytes);
  }
  const bool encrypted = !connection.options().credentials.tls_ca.empty() &&
                         !connection.address().starts_with("unix:");
  if (encrypted && !ticket.tls())
    return Internal("the server issued a ticket for a socket without encryption");
  return ticket;
}

absl::StatusOr<BulkSocketOpener::Opened> BulkSocketOpener::Open(
    Connection& connection, const SessionTicket& session, bool operations,
    const std::function<v1::TransferRequest(std::string token)>& attach) {
  TG_ASSIGN_OR_RETURN(const v1::AdmitBulkResponse ticket,
                      GetTicket(connection, session, operations));
  const auto deadline = std::chrono::steady_clock::now() + kMostForAttaching;
  TG_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTcp(connection.server().bulk_address, deadline));
  TuneTcp(fd);
  std::shared_ptr<StreamSocket> socket;
  if (ticket.tls()) {
    TG_ASSIGN_OR_RETURN(socket,
                        TlsClient(std::move(fd), kBulkStall, {ticket.identity(), ticket.secret()}));
  } else {
    socket = std::make_shared<StreamSocket>(std::move(fd), kBulkStall);
  }
  {
    const MutexLock lock(mutex_);
    if (cancelled_) return Cancelled();
    socket_ = socket;
  }
  socket->SetDeadline(deadline);
  TG_RETURN_IF_ERROR(socket->Handshake());
  const std::string nonce = RandomBytes(kNonceBytes);
  const v1::TransferRequest request =
      attach(StrCat(ticket.identity(), nonce, Prove(ticket.secret(), Prover::kClient, nonce)));
  TG_RETURN_IF_ERROR(SendFrame(*socket, request.SerializeAsString(), {}));
  TG_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(*socket, kMaxDataHeadBytes, 0));
  Opened opened{std::move(socket), {}};
  v1::TransferResponse& answer = opened.answer;
  if (!answer.ParseFromString(frame.head)) return Internal("not a TransferResponse");
  if (answer.has_attached() &&
      !IsProof(answer.attached().proof(), ticket.secret(), Prover::kServer, nonce)) {
    return absl::UnavailableError(
        StrCat(connection.server().bulk_address, " is not the server that issued the ticket"));
  }
  opened.socket->SetDeadline(std::nullopt);
  return opened;
}

}  // namespace telegrad
