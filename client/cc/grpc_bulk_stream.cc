// As in execute_stream.cc, gRPC is called without the mutex, and starting_ keeps the hold on the
// call meanwhile. The next message belongs to the thread that set writing_.
#include "client/cc/grpc_bulk_stream.h"

#include <utility>

#include "client/cc/received_answer.h"
#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/wire/compression.h"
#include "engine/wire/envelope.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/transport.h"

namespace telegrad {

GrpcBulkStream::GrpcBulkStream(BulkTransfers* owner, std::shared_ptr<grpc::Channel> channel,
                               const SessionTicket& ticket)
    : BulkStream(owner), channel_(std::move(channel)) {
  SetMessage(AttachRequest(ticket.token, ticket.epoch), {});
  owner_->connection_->Authorize(&*context_).IgnoreError();  // then the server says so
  grpc::GenericStub stub(channel_);
  stub.PrepareBidiStreamingCall(&*context_, "/telegrad.v1.Data/Transfer", {}, this);
  AddHold();  // for writes that are started outside of gRPC's callbacks
  StartRead(&incoming_);
  StartWrite(&outgoing_);
  StartCall();
}

void GrpcBulkStream::Drain() {
  context_->TryCancel();
  {
    ReleasableLock lock(owner_->mutex_);
    while (!done()) owner_->changed_.wait(lock);
  }
  context_.reset();
  channel_.reset();
}

// With a copy of `data`: what gRPC holds it holds as long as it likes, and the memory is the
// caller's again when its write has ended, which may be before. The chunk is in a cache by now.
void GrpcBulkStream::SetMessage(const v1::TransferRequest& request,
                                std::span<const std::byte> data) {
  std::string head = request.SerializeAsString();
  if (data.empty()) {
    const grpc::Slice slice(head);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    return;
  }
  const grpc::Slice slices[] = {
      grpc::Slice(EnvelopeHead(std::move(head), kPayloadField, data.size())),
      grpc::Slice(data.data(), data.size())};
  outgoing_ = grpc::ByteBuffer(slices, 2);
}

void GrpcBulkStream::Kick() {
  ReleasableLock lock(owner_->mutex_);
  while (true) {
    if (ended_ && !released_ && starting_ == 0) {
      released_ = true;
      lock.unlock();
      RemoveHold();  // the object may be destroyed after this
      return;
    }
    if (writing_ || ended_ || !attached_) return;
    std::optional<Outgoing> message = NextMessage();
    if (!message) return;
    writing_ = true;
    ++starting_;
    lock.unlock();
    Seal(&*message);
    SetMessage(message->request, message->data);
    EndSending(*message);
    message.reset();
    StartWrite(&outgoing_);
    lock.lock();
    --starting_;
  }
}

void GrpcBulkStream::OnWriteDone(bool ok) {
  if (!ok) return;  // the end of reading follows
  {
    MutexLock lock(owner_->mutex_);
    writing_ = false;
  }
  Kick();
}

void GrpcBulkStream::OnReadDone(bool ok) {
  const absl::Status status = ok ? Receive() : absl::OkStatus();
  if (ok && status.ok()) {
    StartRead(&incoming_);
    Kick();
    return;
  }
  {
    MutexLock lock(owner_->mutex_);
    ended_ = true;
    if (status_.ok()) status_ = status;
  }
  if (ok) context_->TryCancel();
  Kick();
}

void GrpcBulkStream::OnDone(const grpc::Status& status) {
  MutexLock lock(owner_->mutex_);
  SetDone(status.ok() ? absl::OkStatus()
                      : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                     status.error_message()));
}

// Handles the message in incoming_. An error ends the stream.
absl::Status GrpcBulkStream::Receive() {
  ReceivedAnswer message;
  v1::TransferResponse response;
  TG_RETURN_IF_ERROR(message.Take(incoming_, &response));
  const Envelope& envelope = message.envelope();
  if (!response.has_download()) return Take(response);
  const v1::Chunk& chunk = response.download();
  TG_ASSIGN_OR_RETURN(const CompressionMethod* method, CompressionOf(chunk));
  if (method == nullptr && envelope.payload_bytes != chunk.bytes()) {
    return Internal("a chunk of ", chunk.bytes(), " bytes with ", envelope.payload_bytes);
  }
  TG_ASSIGN_OR_RETURN(const Incoming incoming, BeginChunk(chunk));
  uint32_t crc = 0;
  if (incoming.to.empty()) {
    // It is dropped.
  } else if (method != nullptr) {
    const absl::Status unpacked = Decompress(*method, envelope.payload, incoming.to);
    crc = unpacked.ok() ? Crc32c(incoming.to.data(), chunk.bytes()) : ~chunk.checksum();
  } else {
    for (std::byte* out = incoming.to.data(); const ByteSpan& piece : envelope.payload) {
      crc = CopyCrc32c(out, piece.data(), piece.size(), crc);
      out += piece.size();
    }
  }
  EndChunk(chunk, incoming, crc);
  return absl::OkStatus();
}

}  // namespace telegrad
