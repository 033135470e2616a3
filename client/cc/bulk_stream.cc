// As in execute_stream.cc, gRPC is called without the mutex, and starting_ keeps the hold on the
// call meanwhile. The next message belongs to the thread that set writing_.
#include "client/cc/bulk_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/wire/compression.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Each pull is answered with several chunks; the next one is there before the last is through.
constexpr size_t kPullsInFlight = 2;
// Damaged chunks of one transfer, after which it is not the network's fault.
constexpr int kMostErrors = 64;

v1::Compression CompressionOf(const Connection& connection) {
  return static_cast<v1::Compression>(connection.server().compression);
}
static_assert(static_cast<int>(Compression::kLz4) == v1::COMPRESSION_LZ4);
static_assert(static_cast<int>(Compression::kZstd) == v1::COMPRESSION_ZSTD);

}  // namespace

BulkStream::BulkStream(BulkTransfers* owner, std::shared_ptr<grpc::Channel> channel,
                       const SessionTicket& ticket)
    : owner_(owner), channel_(std::move(channel)) {
  v1::TransferRequest request;
  request.mutable_attach()->set_token(ticket.token);
  request.mutable_attach()->set_epoch(ticket.epoch);
  for (const CompressionMethod& method : CompressionMethods()) {
    request.mutable_attach()->add_compressions(method.number);
  }
  SetMessage(request, {}, nullptr);
  owner_->connection_->Authorize(&*context_).IgnoreError();  // then the server says so
  grpc::GenericStub stub(channel_);
  stub.PrepareBidiStreamingCall(&*context_, "/telegrad.v1.Data/Transfer", {}, this);
  AddHold();  // for writes that are started outside of gRPC's callbacks
  StartRead(&incoming_);
  StartWrite(&outgoing_);
  StartCall();
}

void BulkStream::Drain() {
  context_->TryCancel();
  {
    std::unique_lock lock(owner_->mutex_);
    owner_->changed_.wait(lock, [this] { return done_; });
  }
  // The call and the connection keep what they have not sent for as long as they are there.
  outgoing_.Clear();
  context_.reset();
  channel_.reset();
  std::unique_lock lock(in_use_->mutex);
  in_use_->changed.wait(lock, [this] { return in_use_->slices == 0; });
}

void BulkStream::SetMessage(const v1::TransferRequest& request, std::span<const std::byte> data,
                            std::shared_ptr<const void> keep) {
  std::string head = request.SerializeAsString();
  if (data.empty()) {
    const grpc::Slice slice(head);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    return;
  }
  struct Holder {
    std::shared_ptr<InUse> in_use;
    std::shared_ptr<const void> keep;
    ~Holder() {
      keep.reset();
      std::lock_guard lock(in_use->mutex);
      if (--in_use->slices == 0) in_use->changed.notify_all();
    }
  };
  {
    std::lock_guard lock(in_use_->mutex);
    ++in_use_->slices;
  }
  const grpc::Slice slices[] = {
      grpc::Slice(EnvelopeHead(std::move(head), kPayloadField, data.size())),
      grpc::Slice(
          const_cast<std::byte*>(data.data()), data.size(),
          [](void* holder) { delete static_cast<Holder*>(holder); },
          new Holder{in_use_, std::move(keep)})};
  outgoing_ = grpc::ByteBuffer(slices, 2);
}

void BulkStream::Kick() {
  std::unique_lock lock(owner_->mutex_);
  while (true) {
    if (ended_ && !released_ && starting_ == 0) {
      released_ = true;
      lock.unlock();
      RemoveHold();  // the object may be gone after this
      return;
    }
    if (writing_ || ended_ || !attached_) return;
    v1::TransferRequest request;
    BulkTransfers::JobRef job;
    std::span<const std::byte> data;
    if (!owner_->releases_.empty()) {
      request.mutable_release()->set_transfer(owner_->releases_.front());
      owner_->releases_.pop_front();
    } else if (auto pull = pulls_.size() < kPullsInFlight ? owner_->NextPull() : std::nullopt) {
      request.mutable_pull()->set_transfer(pull->job->transfer);
      request.mutable_pull()->set_offset(pull->range.offset);
      request.mutable_pull()->set_bytes(pull->range.bytes);
      request.mutable_pull()->set_compression(CompressionOf(*owner_->connection_));
      pulls_.push_back(*std::move(pull));
    } else if (auto chunk = owner_->NextChunk(credit_, chunk_bytes_)) {
      job = chunk->job;
      data = job->data.subspan(chunk->range.offset, chunk->range.bytes);
      request.mutable_upload()->set_transfer(job->transfer);
      request.mutable_upload()->set_offset(chunk->range.offset);
      request.mutable_upload()->set_bytes(static_cast<uint32_t>(data.size()));
      credit_ -= data.size();
      chunks_bytes_ += data.size();
      chunks_.push_back(*std::move(chunk));
      // Those before what the server's credit is for were granted again, so it has them.
      while (chunks_bytes_ - chunks_.front().range.bytes >= most_credit_) {
        chunks_bytes_ -= chunks_.front().range.bytes;
        chunks_.pop_front();
      }
    } else {
      return;
    }
    writing_ = true;
    ++starting_;
    lock.unlock();
    if (job != nullptr) {
      v1::Chunk& chunk = *request.mutable_upload();
      chunk.set_crc32c(Crc32c(data.data(), data.size()));
      std::shared_ptr<const void> keep = job->keep;
      const auto method = FindCompression(CompressionOf(*owner_->connection_));
      auto packed = std::make_shared<std::string>();
      if (method != nullptr && Compress(*method, data, packed.get())) {
        chunk.set_compression(method->number);
        data = std::as_bytes(std::span(packed->data(), packed->size()));
        keep = std::move(packed);
      }
      SetMessage(request, data, std::move(keep));
    } else {
      SetMessage(request, {}, nullptr);
    }
    StartWrite(&outgoing_);
    lock.lock();
    --starting_;
  }
}

void BulkStream::OnWriteDone(bool ok) {
  if (!ok) return;        // the end of reading follows
  grpc::ByteBuffer sent;  // lets go of the caller's memory
  {
    std::lock_guard lock(owner_->mutex_);
    sent.Swap(&outgoing_);
    writing_ = false;
  }
  sent.Clear();
  Kick();
}

void BulkStream::OnReadDone(bool ok) {
  const absl::Status status = ok ? Receive() : absl::OkStatus();
  if (ok && status.ok()) {
    StartRead(&incoming_);
    Kick();
    return;
  }
  {
    std::lock_guard lock(owner_->mutex_);
    ended_ = true;
    if (status_.ok()) status_ = status;
  }
  if (ok) context_->TryCancel();
  Kick();
}

void BulkStream::OnDone(const grpc::Status& status) {
  std::lock_guard lock(owner_->mutex_);
  if (status_.ok()) {
    status_ = status.ok() ? absl::UnavailableError("the server ended a stream of transfers")
                          : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                         status.error_message());
  }
  done_ = true;
  owner_->changed_.notify_all();
}

// Handles the message in incoming_. An error is a violation of the protocol and ends the stream.
absl::Status BulkStream::Receive() {
  std::vector<grpc::Slice> slices;
  if (!incoming_.Dump(&slices).ok()) return Internal("a message could not be read");
  incoming_.Clear();
  std::vector<Piece> pieces;
  for (const grpc::Slice& slice : slices) pieces.emplace_back(slice.begin(), slice.size());
  Envelope envelope;
  TG_RETURN_IF_ERROR(SplitEnvelope(pieces, kPayloadField, &envelope));
  v1::TransferResponse response;
  if (!response.ParseFromString(envelope.head)) return Internal("not a TransferResponse");
  switch (response.what_case()) {
    case v1::TransferResponse::kAttached: {
      std::lock_guard lock(owner_->mutex_);
      attached_ = true;
      credit_ = most_credit_ = response.attached().credit();
      chunk_bytes_ = std::min<uint64_t>(response.attached().chunk_bytes(), most_credit_);
      owner_->changed_.notify_all();
      return chunk_bytes_ > 0 ? absl::OkStatus() : Internal("chunks of no bytes");
    }
    case v1::TransferResponse::kCredit: {
      std::lock_guard lock(owner_->mutex_);
      credit_ = std::min(credit_ + response.credit().bytes(), most_credit_);
      return absl::OkStatus();
    }
    case v1::TransferResponse::kDownload:
      return TakeChunk(response.download(), envelope);
    case v1::TransferResponse::kRefused:
      return TakeRefusal(response.refused());
    case v1::TransferResponse::WHAT_NOT_SET:
      break;
  }
  return Internal("a message that says nothing that this client knows");
}

absl::Status BulkStream::TakeChunk(const v1::Chunk& chunk, const Envelope& envelope) {
  BulkTransfers::JobRef job;
  {
    std::lock_guard lock(owner_->mutex_);
    if (pulls_.empty()) return Internal("a chunk that was not asked for");
    BulkTransfers::Sent& pull = pulls_.front();
    if (pull.job->transfer != chunk.transfer() || pull.range.offset != chunk.offset() ||
        chunk.bytes() == 0 || chunk.bytes() > pull.range.bytes) {
      return Internal("a chunk of ", chunk.bytes(), " bytes at ", chunk.offset(), " of transfer ",
                      chunk.transfer(), " that was not asked for");
    }
    job = pull.job;
    pull.range.offset += chunk.bytes();
    pull.range.bytes -= chunk.bytes();
  }
  // The range is in no pull any more and not received either, so nobody else writes it.
  std::byte* to = job->into.data() + chunk.offset();
  uint32_t crc = 0;
  if (const CompressionMethod* method = FindCompression(chunk.compression())) {
    const absl::Status unpacked = Decompress(*method, envelope.payload, {to, chunk.bytes()});
    crc = unpacked.ok() ? Crc32c(to, chunk.bytes()) : ~chunk.crc32c();
  } else if (envelope.payload_bytes != chunk.bytes()) {
    return Internal("a chunk of ", chunk.bytes(), " bytes with ", envelope.payload_bytes);
  } else {
    for (std::byte* out = to; const Piece& piece : envelope.payload) {
      crc = CopyCrc32c(out, piece.data(), piece.size(), crc);
      out += piece.size();
    }
  }
  bool complete = false;
  {
    std::lock_guard lock(owner_->mutex_);
    if (pulls_.front().range.bytes == 0) pulls_.pop_front();
    if (crc == chunk.crc32c()) {
      job->received += chunk.bytes();
      complete = job->received == job->into.size();
    } else if (++job->errors <= kMostErrors) {
      job->todo.push_back({chunk.offset(), chunk.bytes()});
    }
    if (complete) {
      owner_->releases_.push_back(job->transfer);
      owner_->EndLocked(job->transfer);
    }
  }
  if (complete) job->done->Set(Done{});
  if (job->errors > kMostErrors) {
    owner_->Failed(job, absl::DataLossError("chunks of a read arrive damaged again and again"));
  }
  return absl::OkStatus();
}

absl::Status BulkStream::TakeRefusal(const v1::Refused& refused) {
  const absl::Status status(static_cast<absl::StatusCode>(refused.code()), refused.message());
  BulkTransfers::JobRef job;
  {
    std::lock_guard lock(owner_->mutex_);
    if (!pulls_.empty() && refused.bytes() == 0 &&
        pulls_.front().job->transfer == refused.transfer()) {
      job = pulls_.front().job;
      pulls_.pop_front();
    } else {
      const auto it = owner_->jobs_.find(refused.transfer());
      if (it == owner_->jobs_.end()) return absl::OkStatus();  // it is over
      job = it->second;
      const bool again = absl::IsDataLoss(status) || absl::IsUnavailable(status) ||
                         absl::IsResourceExhausted(status);
      if (absl::IsNotFound(status)) return absl::OkStatus();  // it has ended; its answer follows
      const bool inside = refused.offset() <= job->data.size() &&
                          refused.bytes() <= job->data.size() - refused.offset();
      if (!inside) return Internal("a chunk was refused that was not sent");
      if (again && ++job->errors <= kMostErrors) {
        job->todo.push_front({refused.offset(), refused.bytes()});
        return absl::OkStatus();
      }
    }
  }
  owner_->Failed(job, status);
  return absl::OkStatus();
}

}  // namespace telegrad
