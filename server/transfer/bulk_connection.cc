#include "server/transfer/bulk_connection.h"

#include <sys/eventfd.h>

#include <span>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Of the message with the ticket.
constexpr uint32_t kMaxFirstBytes = 1024;
// For the reason of an end.
constexpr std::chrono::seconds kFarewell{1};

// What is still in the socket.
class SocketData final : public MessageData {
 public:
  SocketData(StreamSocket* socket, uint32_t bytes) : socket_(socket), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  absl::StatusOr<uint32_t> CopyTo(std::byte* to) override {
    taken_ = true;
    auto crc = ReceiveCrc32c(*socket_, {to, bytes_});
    broken_ = crc.status();
    return crc;
  }
  absl::StatusOr<std::span<const std::span<const uint8_t>>> Pieces() override {
    taken_ = true;
    received_.resize(bytes_);
    broken_ = socket_->Receive(std::as_writable_bytes(std::span(received_)));
    if (!broken_.ok()) return broken_;
    pieces_ = {received_};
    return pieces_;
  }
  bool Abandon() override {
    socket_->Shutdown();
    return true;
  }
  bool broken() const override { return !broken_.ok(); }
  // Afterwards the next message is next.
  absl::Status End() {
    return taken_ ? broken_ : SkipPayload(*socket_, static_cast<uint32_t>(bytes_));
  }

 private:
  StreamSocket* const socket_;
  const size_t bytes_;
  bool taken_ = false;
  absl::Status broken_;
  std::vector<uint8_t> received_;
  std::vector<std::span<const uint8_t>> pieces_;
};

}  // namespace

BulkConnection::BulkConnection(std::unique_ptr<StreamSocket> socket, BulkTickets* tickets,
                               Metrics* metrics)
    : socket_(std::move(socket)),
      tickets_(tickets),
      metrics_(metrics),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stream_(metrics) {}

absl::Status BulkConnection::Serve() {
  socket_->SetDeadline(std::chrono::steady_clock::now() + kAdmission);
  absl::Status status = Admit();
  socket_->SetDeadline(std::nullopt);
  if (status.ok()) status = Exchange();
  stream_.Close();
  TransferMessage message;
  v1::Ended& ended = *message.head.mutable_ended();
  ended.set_code(static_cast<uint32_t>(status.raw_code()));
  ended.set_message(std::string(status.message()));
  socket_->SetDeadline(std::chrono::steady_clock::now() + kFarewell);
  Send(message).IgnoreError();  // where there is still somebody
  socket_->Shutdown();
  return status;
}

absl::Status BulkConnection::Admit() {
  TG_RETURN_IF_ERROR(socket_->Handshake());
  TG_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(*socket_, kMaxFirstBytes, 0));
  if (!request_.ParseFromString(frame.head) || !request_.has_attach()) {
    return InvalidArgument("the first message of a bulk socket is attach");
  }
  TG_ASSIGN_OR_RETURN(auto session, tickets_->Redeem(request_.attach().token()));
  TG_RETURN_IF_ERROR(stream_.Attach(std::move(session), shared_from_this()));
  metrics_->Add(Metric::kBulkAdmitted);
  return absl::OkStatus();
}

// Sends one message and takes one, in turn, so that neither direction waits for the other.
absl::Status BulkConnection::Exchange() {
  while (!over_) {
    bool moved = false;
    if (const auto message = stream_.Next()) {
      TG_RETURN_IF_ERROR(Send(*message));
      moved = true;
    }
    if (const auto pull = stream_.BeginFetch()) {
      stream_.Fetch(*pull, [self = shared_from_this()] { self->Wake(); });
      moved = true;
    }
    bool input = false;
    if (!stream_.wants_input()) {
      pollfd polled = {wake_.get(), POLLIN, 0};
      if (!moved) poll(&polled, 1, -1);
    } else if (moved) {
      TG_ASSIGN_OR_RETURN(input, socket_->HasInput());
    } else {
      TG_ASSIGN_OR_RETURN(input, socket_->HasInput(wake_.get()));
    }
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
    if (!input) continue;
    TG_ASSIGN_OR_RETURN(Frame frame,
                        ReceiveFrame(*socket_, TransferStream::kMaxHeadBytes, kChunkBytes));
    TG_RETURN_IF_ERROR(Take(std::move(frame)));
  }
  return absl::AbortedError("the session has ended");
}

absl::Status BulkConnection::Take(Frame frame) {
  if (!request_.ParseFromString(frame.head)) {
    return InvalidArgument("malformed message: not a TransferRequest");
  }
  SocketData data(socket_.get(), frame.payload_bytes);
  TG_RETURN_IF_ERROR(stream_.Accept(request_, data));
  return data.End();
}

absl::Status BulkConnection::Send(const TransferMessage& message) {
  return SendFrame(*socket_, message.head.SerializeAsString(), {message.data.data, message.bytes});
}

void BulkConnection::Wake() { eventfd_write(wake_.get(), 1); }

void BulkConnection::Shutdown() {
  over_ = true;
  socket_->Shutdown();
  Wake();
}

void BulkConnection::OnGranted(uint64_t bytes) {
  if (stream_.OnGranted(bytes)) Wake();
}

}  // namespace telegrad
