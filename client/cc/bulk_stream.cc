// What is sent next (the attachment to the session, chunks of uploads, pulls and releases of
// downloads) and what each received message means. Damaged chunks are sent or asked for again.
#include "client/cc/bulk_stream.h"

#include <algorithm>
#include <utility>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Each pull is answered with several chunks; the next pull is sent before the last chunk has
// arrived.
constexpr size_t kPullsInFlight = 2;
// Damaged chunks of one transfer, after which it is not the network's fault.
constexpr int kMostErrors = 64;
// Limit of the last messages, which the server may not have received when the connection broke.
constexpr size_t kReleases = 1024;

v1::Compression AgreedOn(const Connection& connection) {
  return static_cast<v1::Compression>(connection.server().compression);
}
static_assert(static_cast<int>(Compression::kLz4) == v1::COMPRESSION_LZ4);
static_assert(static_cast<int>(Compression::kZstd) == v1::COMPRESSION_ZSTD);

}  // namespace

v1::TransferRequest BulkStream::AttachRequest(std::string token, uint64_t epoch) const {
  v1::TransferRequest request;
  request.mutable_attach()->set_token(std::move(token));
  request.mutable_attach()->set_epoch(epoch);
  for (const CompressionMethod& method : CompressionMethods()) {
    request.mutable_attach()->add_compressions(method.number);
  }
  return request;
}

std::optional<BulkStream::Outgoing> BulkStream::NextMessage() {
  Outgoing message;
  v1::TransferRequest& request = message.request;
  if (!owner_->releases_.empty()) {
    request.mutable_release()->set_transfer(owner_->releases_.front());
    releases_.push_back(owner_->releases_.front());
    if (releases_.size() > kReleases) releases_.pop_front();
    owner_->releases_.pop_front();
  } else if (auto pull = pulls_.size() < kPullsInFlight ? owner_->NextPull() : std::nullopt) {
    request.mutable_pull()->set_transfer(pull->job->transfer);
    request.mutable_pull()->set_offset(pull->range.offset);
    request.mutable_pull()->set_bytes(pull->range.bytes);
    request.mutable_pull()->set_compression(AgreedOn(*owner_->connection_));
    pulls_.push_back(*std::move(pull));
  } else if (auto chunk = owner_->NextChunk(credit_, chunk_bytes_)) {
    message.job = chunk->job;
    ++message.job->sending;
    message.data = message.job->data.subspan(chunk->range.offset, chunk->range.bytes);
    request.mutable_upload()->set_transfer(message.job->transfer);
    request.mutable_upload()->set_offset(chunk->range.offset);
    request.mutable_upload()->set_bytes(static_cast<uint32_t>(message.data.size()));
    credit_ -= message.data.size();
    chunks_bytes_ += message.data.size();
    chunks_.push_back({message.job->transfer, chunk->range});
    // Those before what the server's credit is for were granted again, so it has them.
    while (chunks_bytes_ - chunks_.front().range.bytes >= most_credit_) {
      chunks_bytes_ -= chunks_.front().range.bytes;
      chunks_.pop_front();
    }
  } else {
    return std::nullopt;
  }
  return message;
}

void BulkStream::EndSending(const Outgoing& message) {
  if (message.job == nullptr) return;
  MutexLock lock(owner_->mutex_);
  if (--message.job->sending == 0) owner_->changed_.notify_all();
}

void BulkStream::Seal(Outgoing* message) const {
  if (message->job == nullptr) return;
  v1::Chunk& chunk = *message->request.mutable_upload();
  chunk.set_checksum(Crc32c(message->data.data(), message->data.size()));
  message->keep = message->job->keep;
  const auto method = FindCompression(AgreedOn(*owner_->connection_));
  auto packed = std::make_shared<std::string>();
  if (method != nullptr && Compress(*method, message->data, packed.get())) {
    chunk.set_compression(method->number);
    message->data = std::as_bytes(std::span(packed->data(), packed->size()));
    message->keep = std::move(packed);
  }
}

absl::Status BulkStream::Take(const v1::TransferResponse& response) {
  switch (response.what_case()) {
    case v1::TransferResponse::kAttached: {
      MutexLock lock(owner_->mutex_);
      if (attached_) return Internal("the server has attached a stream twice");
      const uint64_t credit = response.attached().credit();
      const uint64_t chunk_bytes = std::min<uint64_t>(
          {response.attached().chunk_bytes(), credit, static_cast<uint64_t>(kChunkBytes)});
      if (chunk_bytes == 0) return Internal("the server announced chunks of 0 bytes");
      attached_ = true;
      credit_ = most_credit_ = credit;
      chunk_bytes_ = chunk_bytes;
      owner_->changed_.notify_all();
      return absl::OkStatus();
    }
    case v1::TransferResponse::kCredit: {
      MutexLock lock(owner_->mutex_);
      credit_ = std::min(credit_ + response.credit().bytes(), most_credit_);
      return absl::OkStatus();
    }
    case v1::TransferResponse::kRefused:
      return TakeRefusal(response.refused());
    case v1::TransferResponse::kEnded:
      return absl::Status(static_cast<absl::StatusCode>(response.ended().code()),
                          response.ended().message());
    case v1::TransferResponse::kDownload:
    case v1::TransferResponse::WHAT_NOT_SET:
      break;
  }
  return Internal("the message has no field that this client supports");
}

absl::StatusOr<const CompressionMethod*> BulkStream::CompressionOf(const v1::Chunk& chunk) {
  const CompressionMethod* method = FindCompression(chunk.compression());
  if (method != nullptr || chunk.compression() == v1::COMPRESSION_NONE) return method;
  return Internal("unknown compression ", static_cast<int>(chunk.compression()));
}

absl::StatusOr<BulkStream::Incoming> BulkStream::BeginChunk(const v1::Chunk& chunk,
                                                            std::function<void()> stop) {
  MutexLock lock(owner_->mutex_);
  if (pulls_.empty()) return Internal("a chunk that was not requested");
  BulkTransfers::Sent& pull = pulls_.front();
  if (pull.job->transfer != chunk.transfer() || pull.range.offset != chunk.offset() ||
      chunk.bytes() == 0 || chunk.bytes() > pull.range.bytes) {
    return Internal("a chunk of ", chunk.bytes(), " bytes at ", chunk.offset(), " of transfer ",
                    chunk.transfer(), " that was not requested");
  }
  if (pull.job->failed) return Incoming{pull.job, {}};
  if (pull.job->lent != nullptr && !pull.job->lent->Begin(this, std::move(stop))) {
    // Nobody waits for its bytes, and who took the memory back says so.
    pull.job->failed = absl::CancelledError("the memory of the read was taken back");
    pull.job->todo.clear();
    owner_->releases_.push_back(pull.job->transfer);
    owner_->EndLocked(pull.job->transfer);
    return Incoming{pull.job, {}};
  }
  ++pull.job->writing;
  return Incoming{pull.job, pull.job->into.subspan(chunk.offset(), chunk.bytes())};
}

void BulkStream::EndChunk(const v1::Chunk& chunk, const Incoming& incoming,
                          std::optional<uint32_t> crc) {
  const JobRef& job = incoming.job;
  std::optional<absl::StatusOr<Done>> result;
  bool damaged = false;
  {
    MutexLock lock(owner_->mutex_);
    if (crc) {
      BulkTransfers::Sent& pull = pulls_.front();
      pull.range.offset += chunk.bytes();
      pull.range.bytes -= chunk.bytes();
      if (pull.range.bytes == 0) pulls_.pop_front();
    }
    if (incoming.to.empty()) return;
    --job->writing;
    if (job->failed) {
      if (job->writing == 0) result = *job->failed;
    } else if (crc == chunk.checksum()) {
      job->received += chunk.bytes();
      owner_->meter_->Move(chunk.bytes());
      if (job->received == job->into.size()) {
        owner_->releases_.push_back(job->transfer);
        owner_->EndLocked(job->transfer);
        result = Done{};
      }
    } else if (crc) {
      damaged = ++job->errors > kMostErrors;
      if (!damaged) job->todo.push_back({chunk.offset(), chunk.bytes()});
    }
  }
  if (job->lent != nullptr) job->lent->End(this);
  if (result) job->done->Set(*result);
  if (damaged) {
    owner_->Failed(job, absl::DataLossError("chunks of a read have arrived damaged several times"));
  }
}

void BulkStream::SetDone(const absl::Status& status) {
  if (status_.ok()) {
    status_ =
        status.ok() ? absl::UnavailableError("the server ended a stream of transfers") : status;
  }
  done_ = true;
  owner_->changed_.notify_all();
}

absl::Status BulkStream::TakeRefusal(const v1::Refused& refused) {
  const absl::Status status(static_cast<absl::StatusCode>(refused.code()), refused.message());
  BulkTransfers::JobRef job;
  {
    MutexLock lock(owner_->mutex_);
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
        job = nullptr;
      }
    }
  }
  if (job != nullptr) {
    owner_->Failed(job, status);
  } else {
    owner_->Kick();  // another stream may have the credit for it that this one has not
  }
  return absl::OkStatus();
}

}  // namespace telegrad
