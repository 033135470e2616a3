// Gets a ticket over gRPC, connects, proves to have the ticket, and checks the server's proof.
// Then one thread sends and another receives until either fails or the stream is drained.
#include "client/cc/socket_bulk_stream.h"

#include <utility>
#include <vector>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/wire/compression.h"
#include "proto/transport.h"

namespace telegrad {

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
  opener_.Cancel();
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

absl::StatusOr<std::shared_ptr<StreamSocket>> SocketBulkStream::Open() {
  TG_ASSIGN_OR_RETURN(
      const BulkSocketOpener::Opened opened,
      opener_.Open(*owner_->connection_, ticket_, /*operations=*/false, [this](std::string token) {
        return AttachRequest(std::move(token), ticket_.epoch);
      }));
  TG_RETURN_IF_ERROR(Take(opened.answer));
  if (opened.answer.has_attached()) return opened.socket;
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
  TG_ASSIGN_OR_RETURN(const Incoming incoming, BeginChunk(chunk, [&socket] { socket.Shutdown(); }));
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
