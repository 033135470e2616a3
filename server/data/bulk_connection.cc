// The first message is the ticket. After it one thread reads frames and writes chunks of uploads
// to their buffers; another one sends answers and chunks of downloads.
#include "server/data/bulk_connection.h"

#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "engine/base/utf8.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Limit of the message with the ticket.
constexpr uint32_t kMaxFirstBytes = 1024;
// Time limit for sending the reason of an end.
constexpr std::chrono::seconds kFarewell{1};

// The unread data of a message in the socket.
class SocketData final : public MessageData {
 public:
  SocketData(StreamSocket* socket, uint32_t bytes) : socket_(socket), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  absl::StatusOr<uint32_t> CopyTo(std::byte* to, Checksum kind) override {
    taken_ = true;
    auto sum = ReceiveChecked(*socket_, {to, bytes_}, kind);
    broken_ = sum.status();
    return sum;
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
    : socket_(std::move(socket)), tickets_(tickets), metrics_(metrics), stream_(metrics) {}

absl::Status BulkConnection::Serve() {
  socket_->SetDeadline(std::chrono::steady_clock::now() + kAdmission);
  absl::Status status = Admit();
  socket_->SetDeadline(std::nullopt);
  if (status.ok() && operations_) return std::exchange(operations_, nullptr)(socket_);
  if (status.ok()) status = ServeTransfers();
  Farewell(status);
  socket_->Shutdown();
  return status;
}

absl::Status BulkConnection::ServeTransfers() {
  auto sender = StartThread([this] { SendAll(); });
  const absl::Status status = sender.ok() ? Receive() : sender.status();
  stream_.Close();
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  Wake();
  if (sender.ok()) sender->join();
  return status;
}

absl::Status BulkConnection::Admit() {
  TG_RETURN_IF_ERROR(socket_->Handshake());
  TG_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(*socket_, kMaxFirstBytes, 0));
  if (!request_.ParseFromString(frame.head) || !request_.has_attach()) {
    return InvalidArgument("the first message of a bulk socket must be attach");
  }
  TG_ASSIGN_OR_RETURN(auto redeemed,
                      tickets_->Redeem(request_.attach().token(), [weak = weak_from_this()] {
                        const auto self = weak.lock();
                        if (self) self->Shutdown();
                      }));
  place_ = std::move(redeemed.place);
  admitted_ = true;
  metrics_->Add(Metric::kBulkAdmitted);
  if (redeemed.operations) {
    operations_ = std::move(redeemed.operations);
    TransferMessage message;
    message.head.mutable_attached()->set_proof(std::move(redeemed.proof));
    return Send(message);
  }
  if (!redeemed.peer) {
    return stream_.Attach(std::move(redeemed.session), shared_from_this(), request_.attach(),
                          socket_->KeepsBytes(), std::move(redeemed.proof));
  }
  const std::shared_ptr<Upload> upload = std::move(redeemed.peer->upload);
  TG_RETURN_IF_ERROR(stream_.Attach(
      std::move(redeemed.session), shared_from_this(), request_.attach(), socket_->KeepsBytes(),
      std::move(redeemed.proof), TransferStream::Only{redeemed.peer->transfer, upload}));
  upload->ended().timeline->OnReached(upload->ended().value,
                                      [weak = weak_from_this()](const absl::Status& status) {
                                        if (const auto self = weak.lock())
                                          self->OnTransferEnded(status);
                                      });
  return absl::OkStatus();
}

void BulkConnection::OnTransferEnded(const absl::Status& status) {
  stream_.End(status);
  Wake();
}

absl::Status BulkConnection::Receive() {
  while (Await([this] { return stream_.wants_input(); })) {
    TG_RETURN_IF_ERROR(socket_->AwaitInput());
    TG_ASSIGN_OR_RETURN(Frame frame, ReceiveFrame(*socket_, kMaxDataHeadBytes, kChunkBytes));
    TG_RETURN_IF_ERROR(Take(std::move(frame)));
    Wake();  // there may be an answer
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

void BulkConnection::SendAll() {
  std::optional<TransferMessage> message;
  std::shared_ptr<TransferStream::Chunk> chunk;
  while (Await([&] { return (message = stream_.Next()) || (chunk = stream_.BeginFetch()); })) {
    if (!message) {
      stream_.Fetch(chunk, [self = shared_from_this()] { self->Wake(); });
      continue;
    }
    if (!Send(*message).ok() || message->head.has_ended()) {
      socket_->Shutdown();  // the receiving thread notices and reports it
      break;
    }
    message.reset();
    Wake();  // there may be room for more pulls
  }
  // Waits for the callback of a fetch that was begun, because it uses members of this object.
  ReleasableLock lock(mutex_);
  while (stream_.fetching()) changed_.wait(lock);
}

absl::Status BulkConnection::Send(const TransferMessage& message) {
  return SendFrame(*socket_, message.head.SerializeAsString(), {message.data.data, message.bytes});
}

// Sends the reason to the client, if it is still connected. Input is read and dropped for a moment,
// because closing a socket with unread input would discard the message that was just sent.
void BulkConnection::Farewell(const absl::Status& status) {
  TransferMessage message;
  v1::Ended& ended = *message.head.mutable_ended();
  ended.set_code(static_cast<uint32_t>(status.raw_code()));
  ended.set_message(AsUtf8(ToStd(status.message())));
  socket_->SetDeadline(std::chrono::steady_clock::now() + kFarewell);
  if (!Send(message).ok()) return;
  socket_->EndSending();
  std::vector<std::byte> dropped(16 << 10);
  while (socket_->Receive(dropped).ok()) {
  }
}

template <typename Ready>
bool BulkConnection::Await(Ready ready) {
  ReleasableLock lock(mutex_);
  while (!over_) {
    const uint64_t seen = changes_;
    lock.unlock();
    if (ready()) return true;
    lock.lock();
    while (!over_ && changes_ == seen) changed_.wait(lock);
  }
  return false;
}

void BulkConnection::Wake() {
  const MutexLock lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

void BulkConnection::Shutdown() {
  socket_->Shutdown();
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  Wake();
}

void BulkConnection::OnGranted(uint64_t bytes) {
  if (stream_.OnGranted(bytes)) Wake();
}

}  // namespace telegrad
