// Gets a ticket over gRPC, connects, proves to have the ticket, and checks the server's proof.
// Then one thread sends and another receives until either fails or the stream is drained.
#include "client/cc/socket_bulk_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/crc32c.h"
#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "engine/net/proof.h"
#include "engine/net/psk_tls.h"
#include "engine/net/tcp.h"
#include "engine/wire/compression.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Until gRPC is used instead: where something swallows what is sent to the address, that is what
// the first transfer of a session waits.
constexpr std::chrono::milliseconds kMostForAttaching{2'000};

}  // namespace

SocketBulkStream::SocketBulkStream(BulkTransfers* owner, SessionTicket ticket)
    : BulkStream(owner), ticket_(std::move(ticket)) {
  reader_ = std::thread([this] { Run(); });
}

SocketBulkStream::~SocketBulkStream() {
  if (reader_.joinable()) Drain();  // once it was drained, the mutex may be held
}

void SocketBulkStream::Cancel() { End(absl::CancelledError("the session has ended")); }

void SocketBulkStream::Drain() {
  Cancel();
  if (reader_.joinable()) reader_.join();
}

void SocketBulkStream::End(const absl::Status& status) {
  MutexLock lock(owner_->mutex_);
  if (status_.ok()) status_ = status;
  ended_ = true;
  if (call_ != nullptr) call_->TryCancel();
  if (socket_ != nullptr) socket_->Shutdown();
  wake_.notify_one();
}

void SocketBulkStream::Run() {
  const auto socket = Open();
  absl::Status status = socket.status();
  if (status.ok()) {
    writer_ = std::thread([this, &socket] { Write(**socket); });
    while (status.ok()) {
      status = (*socket)->AwaitInput();
      if (status.ok()) status = Receive(**socket);
      if (status.ok()) Kick();  // there may be credit, or a pull that was answered
    }
  }
  End(status);
  if (writer_.joinable()) writer_.join();
  MutexLock lock(owner_->mutex_);
  SetDone(status);
}

absl::StatusOr<v1::AdmitBulkResponse> SocketBulkStream::GetTicket() {
  Connection& connection = *owner_->connection_;
  v1::AdmitBulkRequest request;
  request.set_token(ticket_.token);
  request.set_epoch(ticket_.epoch);
  v1::AdmitBulkResponse ticket;
  const auto call = std::make_shared<grpc::ClientContext>();
  TG_RETURN_IF_ERROR(connection.Authorize(call.get()));
  call->set_deadline(absl::ToChronoTime(absl::Now() + connection.options().timeout));
  {
    MutexLock lock(owner_->mutex_);
    if (ended_) return status_;
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

// Gets a ticket, connects, and has the server prove that it gave that.
absl::StatusOr<std::shared_ptr<StreamSocket>> SocketBulkStream::Open() {
  const Connection& connection = *owner_->connection_;
  TG_ASSIGN_OR_RETURN(const v1::AdmitBulkResponse ticket, GetTicket());
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
    MutexLock lock(owner_->mutex_);
    if (ended_) return status_;
    socket_ = socket;
  }
  socket->SetDeadline(deadline);
  TG_RETURN_IF_ERROR(socket->Handshake());
  const std::string nonce = RandomBytes(kNonceBytes);
  const v1::TransferRequest attach = AttachRequest(
      StrCat(ticket.identity(), nonce, Prove(ticket.secret(), Prover::kClient, nonce)),
      ticket_.epoch);
  TG_RETURN_IF_ERROR(SendFrame(*socket, attach.SerializeAsString(), {}));
  TG_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(*socket, kMaxDataHeadBytes, 0));
  v1::TransferResponse response;
  if (!response.ParseFromString(frame.head)) return Internal("not a TransferResponse");
  if (response.has_attached() &&
      !IsProof(response.attached().proof(), ticket.secret(), Prover::kServer, nonce)) {
    return absl::UnavailableError(
        StrCat(connection.server().bulk_address, " is not the server that issued the ticket"));
  }
  TG_RETURN_IF_ERROR(Take(response));
  socket->SetDeadline(std::nullopt);
  if (response.has_attached()) return socket;
  return Internal("the first message of a stream of transfers must be attached");
}

absl::Status SocketBulkStream::Receive(StreamSocket& socket) {
  TG_ASSIGN_OR_RETURN(const Frame frame,
                      ReceiveFrame(socket, kMaxDataHeadBytes, kMaxDataMessageBytes));
  v1::TransferResponse response;
  if (!response.ParseFromString(frame.head)) return Internal("not a TransferResponse");
  if (response.has_download()) {
    return TakeChunk(socket, response.download(), frame.payload_bytes);
  }
  TG_RETURN_IF_ERROR(SkipPayload(socket, frame.payload_bytes));
  return Take(response);
}

absl::Status SocketBulkStream::TakeChunk(StreamSocket& socket, const v1::Chunk& chunk,
                                         uint32_t payload_bytes) {
  TG_ASSIGN_OR_RETURN(const CompressionMethod* method, CompressionOf(chunk));
  if (method == nullptr && payload_bytes != chunk.bytes()) {
    return Internal("a chunk of ", chunk.bytes(), " bytes with ", payload_bytes);
  }
  TG_ASSIGN_OR_RETURN(const Incoming incoming, BeginChunk(chunk));
  absl::StatusOr<uint32_t> crc = 0;
  if (incoming.to.empty()) {
    if (auto skipped = SkipPayload(socket, payload_bytes); !skipped.ok()) crc = skipped;
  } else if (method != nullptr) {
    std::vector<uint8_t> packed(payload_bytes);
    crc = ReceiveChecked(socket, std::as_writable_bytes(std::span(packed)));
    const ByteSpan pieces[] = {packed};
    if (crc.ok()) {
      const absl::Status unpacked = Decompress(*method, pieces, incoming.to);
      crc = unpacked.ok() ? Crc32c(incoming.to.data(), incoming.to.size()) : ~chunk.checksum();
    }
  } else {
    crc = ReceiveChecked(socket, incoming.to);
  }
  EndChunk(chunk, incoming, crc.ok() ? std::optional(*crc) : std::nullopt);
  return crc.status();
}

void SocketBulkStream::Write(StreamSocket& socket) {
  ReleasableLock lock(owner_->mutex_);
  while (!ended_) {
    std::optional<Outgoing> message = NextMessage();
    if (!message) {
      wake_.wait(lock);
      continue;
    }
    lock.unlock();
    Seal(&*message);
    const absl::Status sent =
        SendFrame(socket, message->request.SerializeAsString(), message->data);
    EndSending(*message);
    message.reset();
    if (!sent.ok()) {  // the receiving thread notices, and may have the server's reason
      socket.Shutdown();
      return;
    }
    lock.lock();
  }
}

}  // namespace telegrad
