#include "server/data/transfer_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/wire/compression.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Answers or pulls that may wait on one stream before it is not read further.
constexpr size_t kMaxWaiting = 64;
// The credit of a stream is at least this many chunks, and is granted in as many parts.
constexpr uint64_t kChunksOfCredit = 4;
// Chunks of downloads that are fetched while earlier ones are sent, where the host cannot address
// their memory: their device may be at the other end of a network.
constexpr size_t kChunksAhead = 4;

v1::TransferResponse Refusal(uint64_t transfer, uint64_t offset, uint32_t bytes,
                             const absl::Status& why) {
  v1::TransferResponse response;
  v1::Refused& refused = *response.mutable_refused();
  refused.set_transfer(transfer);
  refused.set_offset(offset);
  refused.set_bytes(bytes);
  refused.set_code(static_cast<uint32_t>(why.raw_code()));
  refused.set_message(AsUtf8(ToStd(why.message())));
  return response;
}

class ReceivedChunk final : public ChunkContent {
 public:
  ReceivedChunk(const v1::Chunk& chunk, const CompressionMethod* method, Checksum checksum,
                MessageData* data)
      : chunk_(chunk), method_(method), checksum_(checksum), data_(data) {}

  absl::Status CopyTo(std::byte* to) const override {
    uint32_t sum = 0;
    if (method_ != nullptr) {
      TG_ASSIGN_OR_RETURN(const auto pieces, data_->Pieces());
      TG_RETURN_IF_ERROR(Decompress(*method_, pieces, {to, chunk_.bytes()}));
      sum = ChecksumOf(checksum_, to, chunk_.bytes());
    } else {
      TG_ASSIGN_OR_RETURN(sum, data_->CopyTo(to, checksum_));
    }
    if (sum == chunk_.checksum()) return absl::OkStatus();
    return absl::DataLossError(StrCat("transfer ", chunk_.transfer(), ": the chunk at ",
                                      chunk_.offset(), " has the checksum ", sum, ", not ",
                                      chunk_.checksum(), "; send it again"));
  }

  bool Abandon() const override { return data_->Abandon(); }

 private:
  const v1::Chunk& chunk_;
  const CompressionMethod* const method_;
  const Checksum checksum_;
  MessageData* const data_;
};

}  // namespace

TransferStream::~TransferStream() {
  if (credit_ != nullptr) credit_->Close();
}

absl::Status TransferStream::Attach(std::shared_ptr<TransferOwner> owner,
                                    const std::shared_ptr<TransferSink>& sink,
                                    const v1::Attach& request, bool keeps_bytes, std::string proof,
                                    std::optional<Only> only) {
  const bool may_wait = only && !only->upload->is_open();
  TG_ASSIGN_OR_RETURN(auto credit, owner->transfers().Attach(sink, may_wait));
  {
    const MutexLock lock(mutex_);
    if (closed_) return absl::AbortedError("the stream has ended");
    credit_ = std::move(credit);
  }
  chunk_bytes_ = std::clamp<uint64_t>(credit_->bytes() / kChunksOfCredit, 1,
                                      static_cast<uint64_t>(kChunkBytes));
  owner_ = std::move(owner);
  only_ = std::move(only);
  v1::Checksum checksum = request.checksum();
  if (checksum == v1::CHECKSUM_NONE && !keeps_bytes) checksum = v1::CHECKSUM_CRC32;
  checksum_ = checksum == v1::CHECKSUM_NONE    ? Checksum::kNone
              : checksum == v1::CHECKSUM_CRC32 ? Checksum::kCrc32
                                               : Checksum::kCrc32c;
  v1::TransferResponse response;
  response.mutable_attached()->set_credit(credit_->bytes());
  response.mutable_attached()->set_chunk_bytes(chunk_bytes_);
  response.mutable_attached()->set_proof(std::move(proof));
  response.mutable_attached()->set_checksum(checksum_ == Checksum::kCrc32c ? v1::CHECKSUM_CRC32C
                                                                           : checksum);
  if (only_) {
    for (const ByteRange& range : only_->upload->Stat().missing) {
      v1::ByteRange& missing = *response.mutable_attached()->add_missing();
      missing.set_offset(range.offset);
      missing.set_bytes(range.bytes);
    }
  }
  const MutexLock lock(mutex_);
  responses_.push_back(std::move(response));
  return absl::OkStatus();
}

void TransferStream::End(const absl::Status& status) {
  v1::TransferResponse response;
  response.mutable_ended()->set_code(static_cast<uint32_t>(status.raw_code()));
  response.mutable_ended()->set_message(AsUtf8(ToStd(status.message())));
  const MutexLock lock(mutex_);
  if (!closed_) responses_.push_back(std::move(response));
}

absl::Status TransferStream::Accept(const v1::TransferRequest& request, MessageData& data) {
  if (only_ && (!request.has_upload() || request.upload().transfer() != only_->transfer)) {
    return absl::PermissionDeniedError(
        StrCat("this socket is for uploads to transfer ", only_->transfer, " alone"));
  }
  if (!only_) owner_->Renew();  // else it is not the client who is there
  switch (request.what_case()) {
    case v1::TransferRequest::kUpload:
      return TakeChunk(request.upload(), data);
    case v1::TransferRequest::kPull:
      TakePull(request.pull());
      return absl::OkStatus();
    case v1::TransferRequest::kRelease:
      owner_->transfers().Release(request.release().transfer());
      return absl::OkStatus();
    case v1::TransferRequest::kAttach:
      return InvalidArgument("attach is allowed only as the first message of a stream");
    case v1::TransferRequest::WHAT_NOT_SET:
      break;
  }
  return InvalidArgument("a message that has no field that this server supports");
}

absl::Status TransferStream::TakeChunk(const v1::Chunk& chunk, MessageData& data) {
  if (chunk.bytes() > chunk_bytes_) {
    return InvalidArgument("a chunk of ", chunk.bytes(), " bytes; the largest is ", chunk_bytes_);
  }
  const CompressionMethod* method = FindCompression(chunk.compression());
  if (method == nullptr && chunk.compression() != v1::COMPRESSION_NONE) {
    return InvalidArgument("unknown compression ", static_cast<int>(chunk.compression()));
  }
  if (method == nullptr && data.bytes() != chunk.bytes()) {
    return InvalidArgument("a chunk of ", chunk.bytes(), " bytes comes with ", data.bytes());
  }
  // Before it is taken: with the last one the transfer ends, and whoever waits for that may ask.
  if (only_) metrics_->Add(Metric::kPeerBytesReceived, static_cast<int64_t>(chunk.bytes()));
  const absl::Status taken =
      owner_->transfers().Take(chunk.transfer(), {chunk.offset(), chunk.bytes()},
                               ReceivedChunk(chunk, method, checksum_, &data), *credit_);
  if (!taken.ok() && !data.broken()) Refuse(chunk.transfer(), chunk.offset(), chunk.bytes(), taken);
  return absl::OkStatus();
}

void TransferStream::TakePull(const v1::Pull& pull) {
  const auto download = owner_->transfers().FindDownload(pull.transfer());
  absl::Status status = download.status();
  if (status.ok()) {
    const uint64_t bytes = (*download)->bytes();
    if (pull.bytes() == 0 || pull.offset() > bytes || pull.bytes() > bytes - pull.offset()) {
      status = InvalidArgument("transfer ", pull.transfer(), ": ", pull.bytes(), " bytes at ",
                               pull.offset(), " are not inside of its ", bytes);
    }
  }
  if (!status.ok()) return Refuse(pull.transfer(), pull.offset(), 0, status);
  const MutexLock lock(mutex_);
  pulls_.push_back(pull);
}

void TransferStream::Refuse(uint64_t transfer, uint64_t offset, uint32_t bytes,
                            const absl::Status& why) {
  CountRefusal(why);
  const MutexLock lock(mutex_);
  if (!closed_) responses_.push_back(Refusal(transfer, offset, bytes, why));
  tell_credit_ = true;
}

// After a connection broke, what it still held may arrive behind the same bytes of its successor:
// another stream brings them, or the transfer has ended with them. It may also arrive behind the
// end of its own stream or session. That is nobody's mistake.
void TransferStream::CountRefusal(const absl::Status& why) const {
  if (!absl::IsNotFound(why) && !absl::IsUnavailable(why) && !absl::IsAborted(why)) {
    metrics_->Add(Metric::kChunksRefused);
  }
}

std::shared_ptr<TransferStream::Chunk> TransferStream::BeginFetch() {
  const MutexLock lock(mutex_);
  if (closed_) return nullptr;
  if (!chunks_.empty() && chunks_.front()->again) {
    chunks_.front()->again = chunks_.front()->ahead = false;
    ++fetching_;
    return chunks_.front();
  }
  if (pulls_.empty() || chunks_.size() >= kChunksAhead) return nullptr;
  v1::Pull& pull = pulls_.front();
  auto chunk = std::make_shared<Chunk>();
  chunk->pull = pull;
  chunk->pull.set_bytes(std::min<uint64_t>(pull.bytes(), chunk_bytes_));
  chunk->number = pulled_;
  chunk->ahead = !chunks_.empty();
  pull.set_offset(pull.offset() + chunk->pull.bytes());
  pull.set_bytes(pull.bytes() - chunk->pull.bytes());
  if (pull.bytes() == 0) DropPullLocked();
  chunks_.push_back(chunk);
  ++fetching_;
  return chunk;
}

void TransferStream::DropPullLocked() {
  pulls_.pop_front();
  ++pulled_;
}

void TransferStream::Fetch(const std::shared_ptr<Chunk>& chunk, std::function<void()> ready) {
  auto fetched = [this, chunk, ready = std::move(ready)](absl::StatusOr<FetchedBytes> bytes) {
    Fetched(*chunk, std::move(bytes));
    ready();  // holds what this is a part of
  };
  const v1::Pull& pull = chunk->pull;
  const auto download = owner_->transfers().FindDownload(pull.transfer());
  if (!download.ok()) return fetched(download.status());  // released since it was asked for
  // What is here would only be packed before its turn, and nobody pays for that.
  if (chunk->ahead && (*download)->is_here()) {
    return fetched(ResourceExhausted("a chunk that is here waits for its turn"));
  }
  (*download)->Fetch({pull.offset(), pull.bytes()}, chunk->ahead, std::move(fetched));
}

void TransferStream::Fetched(Chunk& chunk, absl::StatusOr<FetchedBytes> fetched) {
  const uint64_t bytes = chunk.pull.bytes();
  std::optional<TransferMessage> message;
  if (fetched.ok()) {
    message.emplace();
    message->data = *std::move(fetched);
    message->bytes = bytes;
    v1::Chunk& head = *message->head.mutable_download();
    head.set_transfer(chunk.pull.transfer());
    head.set_offset(chunk.pull.offset());
    head.set_bytes(static_cast<uint32_t>(bytes));
    head.set_checksum(ChecksumOf(checksum_, message->data.data, bytes));
    if (const CompressionMethod* method = FindCompression(chunk.pull.compression())) {
      auto packed = std::make_shared<std::string>();
      if (Compress(*method, {message->data.data, bytes}, packed.get())) {
        head.set_compression(method->number);
        message->bytes = packed->size();
        message->data = {reinterpret_cast<const std::byte*>(packed->data()), std::move(packed)};
      }
    }
    owner_->Count(Metric::kBytesRead, static_cast<int64_t>(bytes));
  }
  const MutexLock lock(mutex_);
  --fetching_;
  if (closed_) return;
  chunk.again = chunk.ahead && absl::IsResourceExhausted(fetched.status());
  if (chunk.again) return;
  chunk.message = std::move(message);
  chunk.failed = fetched.status();
  chunk.fetched = true;
}

// The message of the first chunk, where that is there. If it failed, its pull is refused, with all
// that was to follow of it.
std::optional<TransferMessage> TransferStream::NextChunkLocked() {
  if (chunks_.empty() || !chunks_.front()->fetched) return std::nullopt;
  const std::shared_ptr<Chunk> chunk = std::move(chunks_.front());
  chunks_.pop_front();
  if (chunk->message) return std::move(chunk->message);
  while (!chunks_.empty() && chunks_.front()->number == chunk->number) chunks_.pop_front();
  if (pulled_ == chunk->number) DropPullLocked();
  CountRefusal(chunk->failed);
  TransferMessage message;
  message.head = Refusal(chunk->pull.transfer(), chunk->pull.offset(), 0, chunk->failed);
  return message;
}

bool TransferStream::HasCreditLocked() const {
  return granted_ > 0 && (tell_credit_ || granted_ >= credit_->bytes() / kChunksOfCredit);
}

bool TransferStream::OnGranted(uint64_t bytes) {
  const MutexLock lock(mutex_);
  granted_ += bytes;
  return HasCreditLocked();
}

std::optional<TransferMessage> TransferStream::Next() {
  const MutexLock lock(mutex_);
  if (closed_) return std::nullopt;
  if (!responses_.empty()) {
    TransferMessage message;
    message.head = std::move(responses_.front());
    responses_.pop_front();
    return message;
  }
  if (HasCreditLocked()) {
    TransferMessage message;
    message.head.mutable_credit()->set_bytes(std::exchange(granted_, 0));
    tell_credit_ = false;
    return message;
  }
  return NextChunkLocked();
}

bool TransferStream::wants_input() const {
  const MutexLock lock(mutex_);
  return responses_.size() < kMaxWaiting && pulls_.size() < kMaxWaiting;
}

bool TransferStream::idle() const {
  const MutexLock lock(mutex_);
  return responses_.empty() && pulls_.empty() && chunks_.empty() && fetching_ == 0;
}

bool TransferStream::fetching() const {
  const MutexLock lock(mutex_);
  return fetching_ > 0;
}

void TransferStream::Close() {
  std::deque<std::shared_ptr<Chunk>> dropped;
  const MutexLock lock(mutex_);
  closed_ = true;
  if (credit_ != nullptr) credit_->Close();
  responses_.clear();
  pulls_.clear();
  dropped.swap(chunks_);
}

}  // namespace telegrad
