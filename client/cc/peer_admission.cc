// An asynchronous call asks the receiving server for a ticket, again where the connection
// breaks, until a deadline. The object of the call lives until it is answered.
#include "client/cc/peer_admission.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "client/cc/call_events.h"
#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "engine/net/proof.h"
#include "grpcpp/grpcpp.h"
#include "proto/call_event.h"
#include "telegrad/v1/data.grpc.pb.h"

namespace telegrad {
namespace {

// One request, which keeps itself until it is answered. Not a call of gRPC's callbacks: their
// threads, of which one may let go of the connection last, end with the last connection, and
// cannot await themselves.
class Admission final : public CallEvent, public std::enable_shared_from_this<Admission> {
 public:
  Admission(std::shared_ptr<Connection> connection, v1::AdmitBulkRequest request,
            absl::Time deadline, Future<PeerTicket> told)
      : connection_(std::move(connection)),
        stub_(v1::Data::NewStub(connection_->channel())),
        request_(std::move(request)),
        deadline_(deadline),
        told_(std::move(told)) {}

  void Ask() {
    context_ = std::make_unique<grpc::ClientContext>();
    if (absl::Status status = connection_->Authorize(context_.get()); !status.ok()) {
      return told_.Set(status);
    }
    context_->set_wait_for_ready(true);
    context_->set_deadline(absl::ToChronoTime(deadline_));
    use_.emplace(CallEvents::Use::OfAny([context = context_.get()] { context->TryCancel(); }));
    self_ = shared_from_this();
    call_ = stub_->AsyncAdmitBulk(context_.get(), request_, use_->queue());
    call_->Finish(&response_, &status_, tag());
  }

 private:
  void Happened(bool) override {
    const std::shared_ptr<Admission> self = std::move(self_);
    call_.reset();
    use_.reset();
    // The call broke; the next one waits until there is a connection again.
    if (status_.error_code() == grpc::StatusCode::UNAVAILABLE && absl::Now() < deadline_) {
      return Ask();
    }
    told_.Set(Ticket(status_));
  }
  absl::StatusOr<PeerTicket> Ticket(const grpc::Status& status) const {
    if (!status.ok()) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    }
    PeerTicket ticket{response_.transfer(), response_.identity(), response_.secret(),
                      response_.tls()};
    if (ticket.identity.size() != kIdentityBytes || ticket.secret.size() != kSecretBytes) {
      return Internal("a ticket of ", ticket.identity.size(), " and ", ticket.secret.size(),
                      " bytes, expected ", kIdentityBytes, " and ", kSecretBytes);
    }
    const bool encrypted = !connection_->options().credentials.tls_ca.empty() &&
                           !connection_->address().starts_with("unix:");
    if (encrypted && !ticket.tls) {
      return Internal("the server issued a ticket for a socket without encryption");
    }
    return ticket;
  }

  const std::shared_ptr<Connection> connection_;
  const std::unique_ptr<v1::Data::Stub> stub_;
  const v1::AdmitBulkRequest request_;
  const absl::Time deadline_;
  const Future<PeerTicket> told_;
  std::shared_ptr<Admission> self_;  // while it is asked
  std::unique_ptr<grpc::ClientContext> context_;
  std::optional<CallEvents::Use> use_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::AdmitBulkResponse>> call_;
  v1::AdmitBulkResponse response_;
  grpc::Status status_;
};

}  // namespace

void AdmitPeer(std::shared_ptr<Connection> connection, const SessionTicket& session,
               const std::string& peer_key, uint64_t bytes, absl::Duration limit,
               const Future<PeerTicket>& told) {
  v1::AdmitBulkRequest request;
  request.set_token(session.token);
  request.set_epoch(session.epoch);
  request.set_peer_key(peer_key);
  request.set_bytes(bytes);
  // It may be sent again, and has one ticket.
  uint64_t number = 0;
  const std::string random = RandomBytes(sizeof number);
  std::memcpy(&number, random.data(), sizeof number);
  request.set_request(number | 1);
  std::make_shared<Admission>(std::move(connection), std::move(request), absl::Now() + limit, told)
      ->Ask();
}

}  // namespace telegrad
