// As in execute_call.cc, flags under the mutex say what is going on, Pump decides, and gRPC and the
// session are called without it.
#include "server/service/data_call.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/wire/compression.h"
#include "engine/wire/envelope.h"
#include "proto/transport.h"
#include "server/service/convert.h"

namespace telegrad {
namespace {

// Answers or pulls that may wait on one stream before it is not read further.
constexpr size_t kMaxWaiting = 64;
// Of a message beside the data of its chunk.
constexpr int64_t kMaxHeadBytes = 64 << 10;
// A stream's credit is at least as many chunks, and this part of it is granted at a time.
constexpr uint64_t kChunksOfCredit = 4;

// A chunk in the pieces in which the transport delivered it, which outlive this.
class WireChunk final : public ChunkContent {
 public:
  WireChunk(const v1::Chunk& chunk, const CompressionMethod* method, std::span<const Piece> pieces)
      : chunk_(chunk), method_(method), pieces_(pieces) {}

  absl::Status CopyTo(std::byte* to) const override {
    uint32_t crc = 0;
    if (method_ != nullptr) {
      TG_RETURN_IF_ERROR(Decompress(*method_, pieces_, {to, chunk_.bytes()}));
      crc = Crc32c(to, chunk_.bytes());
    } else {
      for (const Piece& piece : pieces_) {
        crc = CopyCrc32c(to, piece.data(), piece.size(), crc);
        to += piece.size();
      }
    }
    if (crc == chunk_.crc32c()) return absl::OkStatus();
    return absl::DataLossError(StrCat("transfer ", chunk_.transfer(), ": the chunk at ",
                                      chunk_.offset(), " has the checksum ", crc, ", not ",
                                      chunk_.crc32c(), "; send it again"));
  }

 private:
  const v1::Chunk& chunk_;
  const CompressionMethod* const method_;
  const std::span<const Piece> pieces_;
};

}  // namespace

std::shared_ptr<DataCall> DataCall::Create(SessionRegistry& registry, Metrics* metrics,
                                           Caller caller) {
  std::shared_ptr<DataCall> call(new DataCall(registry, metrics, std::move(caller)));
  call->self_ = call;
  return call;
}

void DataCall::Start(OpenCalls<DataCall>::Place place, const absl::Status& refused) {
  place_ = std::move(place);
  if (refused.ok()) {
    Pump();
  } else {
    End(refused);
  }
}

void DataCall::OnReadDone(bool ok) {
  bool take;
  {
    std::lock_guard lock(mutex_);
    if (!ok) input_ended_ = true;
    take = ok && !ended_;
  }
  // reading_ stays set meanwhile, so that nobody else starts a read into incoming_.
  const absl::Status status = take ? Accept() : absl::OkStatus();
  {
    std::lock_guard lock(mutex_);
    reading_ = false;
  }
  if (status.ok()) {
    Pump();
  } else {
    End(status);
  }
}

// An error is a violation of the protocol and ends the stream; what is wrong with a single chunk or
// pull is told in a Refused.
absl::Status DataCall::Accept() {
  ReceivedMessage message(incoming_);
  incoming_.Clear();
  Envelope envelope;
  TG_RETURN_IF_ERROR(SplitRequest(message, kMaxHeadBytes, "it is fixed", &envelope));
  if (!request_.ParseFromString(envelope.head)) {
    return InvalidArgument("malformed message: not a TransferRequest");
  }
  if (session_ == nullptr) {
    if (!request_.has_attach()) {
      return FailedPrecondition("the first message of a stream is attach");
    }
    return Attach(request_.attach());
  }
  session_->Renew();
  switch (request_.what_case()) {
    case v1::TransferRequest::kUpload:
      return TakeChunk(request_.upload(), envelope.payload, envelope.payload_bytes);
    case v1::TransferRequest::kPull:
      return TakePull(request_.pull());
    case v1::TransferRequest::kRelease:
      session_->transfers().Release(request_.release().transfer());
      return absl::OkStatus();
    case v1::TransferRequest::kAttach:
      return InvalidArgument("attach is only the first message of a stream");
    case v1::TransferRequest::WHAT_NOT_SET:
      break;
  }
  return InvalidArgument("a message that says nothing that this server knows");
}

absl::Status DataCall::Attach(const v1::Attach& attach) {
  TG_ASSIGN_OR_RETURN(auto session,
                      registry_.Find(attach.token(), attach.epoch(), *caller_.tenant));
  TG_ASSIGN_OR_RETURN(credit_, session->transfers().Attach(shared_from_this()));
  chunk_bytes_ = std::clamp<uint64_t>(credit_->bytes() / kChunksOfCredit, 1,
                                      static_cast<uint64_t>(kChunkBytes));
  session_ = std::move(session);
  v1::TransferResponse response;
  response.mutable_attached()->set_credit(credit_->bytes());
  response.mutable_attached()->set_chunk_bytes(chunk_bytes_);
  std::lock_guard lock(mutex_);
  responses_.push_back(std::move(response));
  return absl::OkStatus();
}

absl::Status DataCall::TakeChunk(const v1::Chunk& chunk, std::span<const Piece> data,
                                 uint64_t data_bytes) {
  if (chunk.bytes() > chunk_bytes_) {
    return InvalidArgument("a chunk of ", chunk.bytes(), " bytes; the largest is ", chunk_bytes_);
  }
  const CompressionMethod* method = FindCompression(chunk.compression());
  if (method == nullptr && chunk.compression() != v1::COMPRESSION_NONE) {
    return InvalidArgument("this server knows no compression ",
                           static_cast<int>(chunk.compression()));
  }
  if (method == nullptr && data_bytes != chunk.bytes()) {
    return InvalidArgument("a chunk of ", chunk.bytes(), " bytes comes with ", data_bytes);
  }
  const absl::Status taken = session_->transfers().Take(
      chunk.transfer(), {chunk.offset(), chunk.bytes()}, WireChunk(chunk, method, data), *credit_);
  if (!taken.ok()) Refuse(chunk.transfer(), chunk.offset(), chunk.bytes(), taken);
  return absl::OkStatus();
}

absl::Status DataCall::TakePull(const v1::Pull& pull) {
  absl::StatusOr<std::shared_ptr<const Download>> download =
      session_->transfers().FindDownload(pull.transfer());
  absl::Status status = download.status();
  if (status.ok()) {
    const uint64_t bytes = (*download)->bytes();
    if (pull.bytes() == 0 || pull.offset() > bytes || pull.bytes() > bytes - pull.offset()) {
      status = InvalidArgument("transfer ", pull.transfer(), ": ", pull.bytes(), " bytes at ",
                               pull.offset(), " are not inside of its ", bytes);
    }
  }
  if (!status.ok()) {
    Refuse(pull.transfer(), pull.offset(), 0, status);
    return absl::OkStatus();
  }
  std::lock_guard lock(mutex_);
  pulls_.push_back(pull);
  return absl::OkStatus();
}

void DataCall::Refuse(uint64_t transfer, uint64_t offset, uint32_t bytes, const absl::Status& why) {
  metrics_->Add(Metric::kChunksRefused);
  v1::TransferResponse response;
  v1::Refused& refused = *response.mutable_refused();
  refused.set_transfer(transfer);
  refused.set_offset(offset);
  refused.set_bytes(bytes);
  refused.set_code(static_cast<uint32_t>(why.raw_code()));
  refused.set_message(std::string(why.message()));
  std::lock_guard lock(mutex_);
  responses_.push_back(std::move(response));
}

// Of the chunk with which the pull begins.
void DataCall::Fetch(const v1::Pull& pull) {
  const auto download = session_->transfers().FindDownload(pull.transfer());
  if (!download.ok()) return Fetched(pull, download.status());  // released since it was asked for
  const ByteRange range{pull.offset(), std::min<uint64_t>(pull.bytes(), chunk_bytes_)};
  (*download)->Fetch(range, [self = shared_from_this(), pull](absl::StatusOr<FetchedBytes> bytes) {
    self->Fetched(pull, std::move(bytes));
  });
}

void DataCall::Fetched(const v1::Pull& pull, absl::StatusOr<FetchedBytes> fetched) {
  const auto bytes = std::min<uint64_t>(pull.bytes(), chunk_bytes_);
  std::optional<grpc::ByteBuffer> message;
  if (fetched.ok()) {
    v1::TransferResponse response;
    v1::Chunk& chunk = *response.mutable_download();
    chunk.set_transfer(pull.transfer());
    chunk.set_offset(pull.offset());
    chunk.set_bytes(static_cast<uint32_t>(bytes));
    chunk.set_crc32c(Crc32c(fetched->data, bytes));
    const void* data = fetched->data;
    size_t size = bytes;
    if (const CompressionMethod* method = FindCompression(pull.compression())) {
      auto packed = std::make_shared<std::string>();
      if (Compress(*method, {fetched->data, bytes}, packed.get())) {
        chunk.set_compression(method->number);
        data = packed->data();
        size = packed->size();
        fetched->owner = std::move(packed);
      }
    }
    metrics_->Add(Metric::kBytesRead, static_cast<int64_t>(bytes));
    message = ToMessage(response.SerializeAsString(), data, size, std::move(fetched->owner));
  } else {
    Refuse(pull.transfer(), pull.offset(), 0, fetched.status());
  }
  {
    std::lock_guard lock(mutex_);
    fetching_ = false;
    if (ended_) {
      message.reset();
    } else {
      v1::Pull& front = pulls_.front();
      front.set_offset(front.offset() + bytes);
      front.set_bytes(message ? front.bytes() - bytes : 0);
      if (front.bytes() == 0) pulls_.pop_front();
      chunk_ = std::move(message);
    }
  }
  Pump();
}

void DataCall::OnSent(bool ok) {
  grpc::ByteBuffer sent;  // lets go of the memory that it was sent from
  {
    std::lock_guard lock(mutex_);
    sent.Swap(&outgoing_);
    writing_ = false;
  }
  sent.Clear();
  if (ok) {
    Pump();
  } else {
    End(absl::CancelledError("the client is gone"));
  }
}

void DataCall::OnGone() { End(absl::CancelledError("the client is gone")); }

void DataCall::OnDone() {
  if (credit_ != nullptr) credit_->Close();
  self_.reset();
}

void DataCall::OnGranted(uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    granted_ += bytes;
    if (granted_ < credit_->bytes() / kChunksOfCredit) return;
  }
  Pump();
}

void DataCall::OnSessionEnded() { End(absl::AbortedError("the session has ended")); }

void DataCall::End(absl::Status status) {
  std::optional<grpc::ByteBuffer> dropped;
  {
    std::lock_guard lock(mutex_);
    if (!ended_) end_ = std::move(status);
    ended_ = true;
    responses_.clear();
    pulls_.clear();
    dropped.swap(chunk_);
  }
  dropped.reset();
  Pump();
}

void DataCall::Pump() {
  const std::shared_ptr<DataCall> keep = shared_from_this();
  std::unique_lock lock(mutex_);
  while (!finished_) {
    const bool write = !writing_ && !ended_ && NextMessage();
    const bool read = !reading_ && !input_ended_ && !ended_ && responses_.size() < kMaxWaiting &&
                      pulls_.size() < kMaxWaiting;
    const bool fetch = !fetching_ && !ended_ && !chunk_ && !pulls_.empty();
    const bool idle =
        input_ended_ && !reading_ && responses_.empty() && pulls_.empty() && !fetching_ && !chunk_;
    const bool finish = !write && !writing_ && starting_ == 0 && (ended_ || idle);
    if (!write && !read && !fetch && !finish) return;
    v1::Pull pull;
    if (write) writing_ = true;
    if (read) reading_ = true;
    if (fetch) {
      fetching_ = true;
      pull = pulls_.front();
    }
    if (finish) finished_ = true;
    ++starting_;
    const absl::Status end = end_;
    lock.unlock();
    if (write) StartWrite(&outgoing_);
    if (read) StartRead(&incoming_);
    if (fetch) Fetch(pull);
    if (finish) return Finish(ToGrpc(end));
    lock.lock();
    --starting_;
  }
}

// Puts the next message into outgoing_, if there is one.
bool DataCall::NextMessage() {
  if (!responses_.empty()) {
    outgoing_ = ToMessage(responses_.front().SerializeAsString(), nullptr, 0, nullptr);
    responses_.pop_front();
    return true;
  }
  if (credit_ != nullptr && granted_ > 0 && granted_ >= credit_->bytes() / kChunksOfCredit) {
    v1::TransferResponse response;
    response.mutable_credit()->set_bytes(std::exchange(granted_, 0));
    outgoing_ = ToMessage(response.SerializeAsString(), nullptr, 0, nullptr);
    return true;
  }
  if (!chunk_) return false;
  outgoing_ = *std::move(chunk_);
  chunk_.reset();
  return true;
}

}  // namespace telegrad
