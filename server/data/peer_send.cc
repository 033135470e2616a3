// Connects to the other server with a ticket, sends the chunks that it says are missing, and
// tries again after a growing pause until the transfer has ended or further tries would fail as
// well.
#include "server/data/peer_send.h"

#include <algorithm>
#include <utility>

#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "engine/net/frames.h"
#include "engine/net/proof.h"
#include "engine/net/tcp.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

constexpr std::chrono::milliseconds kAdmission{5'000}, kFirstPause{20}, kLongestPause{1'000},
    kLongestPauseForRoom{100};
// Chunks that arrived damaged, after which it is not the network's fault.
constexpr int kMostErrors = 64;
constexpr size_t kMostTickets = 8;
constexpr uint64_t kMostTimes = 4;  // that a buffer's bytes are sent

using SteadyClock = std::chrono::steady_clock;

// Whether another connection would end with the same error.
bool IsFinal(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
         !absl::IsResourceExhausted(status) && !absl::IsAborted(status);
}

absl::Status Ended(const v1::Ended& ended) {
  return absl::Status(static_cast<absl::StatusCode>(ended.code()),
                      ToAbsl(Clip(ended.message(), 512)));
}

}  // namespace

// A chunk on its way out of the buffer.
struct PeerSend::Fetching {
  ByteRange range;
  struct Result {
    TimelinePoint done{std::make_shared<Timeline>(), 1};
    absl::StatusOr<FetchedBytes> bytes;
  };
  std::shared_ptr<Result> result = std::make_shared<Result>();
};

PeerSend::PeerSend(Request request, const PeerKey* key, Metrics* metrics, Patience patience)
    : request_(std::move(request)),
      key_(*key),
      metrics_(metrics),
      patience_(patience),
      tickets_{request_.ticket} {}

void PeerSend::Run() { End(RunUntilOver()); }

void PeerSend::End(const absl::Status& status) {
  request_.bytes.reset();
  std::exchange(request_.done, nullptr)(status);
}

void PeerSend::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  if (socket_ != nullptr) socket_->Shutdown();
  if (awaited_ != nullptr) awaited_->Signal(1, absl::CancelledError("the send was cancelled"));
  wake_.notify_all();
}

bool PeerSend::Pause(std::chrono::milliseconds time) {
  const auto until = SteadyClock::now() + time;
  ReleasableLock lock(mutex_);
  while (!stopped_ && wake_.wait_until(lock, until) != std::cv_status::timeout) {
  }
  return !stopped_;
}

absl::Status PeerSend::RunUntilOver() {
  auto moved = SteadyClock::now();
  auto pause = kFirstPause;
  while (true) {
    TG_RETURN_IF_ERROR(Cancelled());
    const uint64_t before = missing_;
    refused_ = false;
    attached_at_.reset();
    sent_any_ = false;
    const absl::Status status = Attempt();
    if (over_) return *over_;
    // Where it keeps a connection for long and takes nothing, it waits for its buffer.
    const bool kept =
        attached_at_ && !sent_any_ && SteadyClock::now() - *attached_at_ > patience_.reach;
    if (missing_ < before || kept) {
      moved = SteadyClock::now();
      pause = kFirstPause;
    }
    if (refused_ && !tickets_.empty()) continue;  // the one before may be the valid one
    if (IsFinal(status)) return status;
    const bool full = absl::IsResourceExhausted(status);
    const std::chrono::milliseconds patience = full ? patience_.room : patience_.reach;
    if (SteadyClock::now() - moved > patience) {
      return absl::Status(
          full ? status.code() : absl::StatusCode::kUnavailable,
          StrCat("the bulk socket of the other server at ", request_.address,
                 " has taken no byte for ", patience.count(), " ms: ", ToStd(status.message())));
    }
    if (!Pause(pause)) {
      TG_RETURN_IF_ERROR(Cancelled());
      return absl::CancelledError("the server stops");
    }
    pause = std::min(2 * pause, full ? kLongestPauseForRoom : kLongestPause);
  }
}

// One connection.
absl::Status PeerSend::Attempt() {
  absl::Status status = Connect();
  if (status.ok()) {
    auto terms = Attach();
    status = terms.ok() ? SendAll(*terms) : terms.status();
  }
  const MutexLock lock(mutex_);
  if (socket_ != nullptr) socket_->Shutdown();
  socket_.reset();
  return status;
}

absl::Status PeerSend::Connect() {
  const auto deadline = SteadyClock::now() + kAdmission;
  TG_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTcp(request_.address, deadline));
  TuneTcp(fd);
  std::shared_ptr<StreamSocket> socket;
  if (request_.tls) {
    TG_ASSIGN_OR_RETURN(socket, TlsClient(std::move(fd), kBulkStall, tickets_.front()));
  } else {
    socket = std::make_shared<StreamSocket>(std::move(fd), kBulkStall);
  }
  socket->SetDeadline(deadline);
  const MutexLock lock(mutex_);
  if (stopped_) return absl::CancelledError("the request was cancelled");
  socket_ = std::move(socket);
  return absl::OkStatus();
}

absl::StatusOr<PeerSend::Terms> PeerSend::Attach() {
  const PresharedKey ticket = tickets_.front();
  // Unless it is said to be valid or not, others are tried first.
  tickets_.pop_front();
  tickets_.push_back(ticket);
  TG_RETURN_IF_ERROR(socket_->Handshake());
  const std::string nonce = RandomBytes(kNonceBytes);
  std::string token = StrCat(ticket.identity, nonce, Prove(ticket.secret, Prover::kClient, nonce));
  TG_ASSIGN_OR_RETURN(const std::string signature, key_.Sign(token));
  token += signature;
  v1::TransferRequest request;
  request.mutable_attach()->set_token(std::move(token));
  request.mutable_attach()->set_checksum(socket_->KeepsBytes() ? v1::CHECKSUM_NONE
                                                               : v1::CHECKSUM_CRC32C);
  NextTicket next = NextTicketOf(ticket.secret, nonce);
  tickets_.push_front({std::move(next.identity), std::move(next.secret)});
  if (tickets_.size() > kMostTickets) tickets_.erase(tickets_.end() - 2);
  TG_RETURN_IF_ERROR(SendFrame(*socket_, request.SerializeAsString(), {}));
  TG_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(*socket_, kMaxDataHeadBytes, 0));
  v1::TransferResponse response;
  if (!response.ParseFromString(frame.head)) return Internal("not a TransferResponse");
  if (response.has_ended()) {
    const absl::Status ended = Ended(response.ended());
    if (absl::IsPermissionDenied(ended)) {  // this ticket is not valid, so none follows it
      tickets_.pop_front();
      tickets_.pop_back();
      refused_ = true;
    }
    return ended.ok() ? Internal("the other server has ended what it has not begun") : ended;
  }
  const v1::Attached& attached = response.attached();
  if (!response.has_attached() ||
      !IsProof(attached.proof(), ticket.secret, Prover::kServer, nonce)) {
    return absl::PermissionDeniedError(
        StrCat(request_.address, " is not the server that issued the ticket"));
  }
  attached_at_ = SteadyClock::now();
  tickets_.resize(1);
  socket_->SetDeadline(std::nullopt);
  Terms terms;
  terms.credit = terms.most_credit = attached.credit();
  terms.chunk_bytes = std::min<uint64_t>(
      {attached.chunk_bytes(), attached.credit(), static_cast<uint64_t>(kChunkBytes)});
  if (terms.chunk_bytes == 0) return Internal("the other server announced chunks of 0 bytes");
  if (attached.checksum() == v1::CHECKSUM_CRC32) terms.checksum = Checksum::kCrc32;
  if (attached.checksum() == v1::CHECKSUM_NONE) {
    if (!socket_->KeepsBytes())
      return Internal("the other server requires chunks without checksums");
    terms.checksum = Checksum::kNone;
  }
  const uint64_t all = request_.bytes->bytes();
  uint64_t missing = 0;
  for (const v1::ByteRange& range : attached.missing()) {
    if (range.offset() > all || range.bytes() > all - range.offset()) {
      return Internal("the other server misses bytes that there are not");
    }
    missing += range.bytes();
    if (missing > all) return Internal("the other server misses more bytes than there are");
    if (range.bytes() > 0) terms.todo.push_back({range.offset(), range.bytes()});
  }
  missing_ = std::min(missing_, missing);
  return terms;
}

std::unique_ptr<PeerSend::Fetching> PeerSend::Fetch(ByteRange range) const {
  auto fetching = std::make_unique<Fetching>();
  fetching->range = range;
  request_.bytes->Fetch(range, /*ahead=*/false,
                        [result = fetching->result](absl::StatusOr<FetchedBytes> fetched) {
                          result->bytes = std::move(fetched);
                          result->done.timeline->Signal(1);
                        });
  return fetching;
}

// The copy of a chunk waits for its turn on the device, which may have much other work. If this is
// stopped, the point is reached with an error, and the copy keeps what it uses until its end.
absl::Status PeerSend::Await(const Fetching& fetched) {
  const std::shared_ptr<Timeline> timeline = fetched.result->done.timeline;
  {
    const MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("the send was cancelled");
    awaited_ = timeline;
  }
  const absl::Status status = timeline->Wait(1);
  const MutexLock lock(mutex_);
  awaited_.reset();
  return status;
}

// While one chunk is being sent, the next one is copied out of memory that only its device reaches.
absl::Status PeerSend::SendAll(Terms& terms) {
  const auto take = [&]() -> std::unique_ptr<Fetching> {
    if (terms.todo.empty()) return nullptr;
    ByteRange& front = terms.todo.front();
    const ByteRange range{front.offset, std::min(front.bytes, terms.chunk_bytes)};
    front.offset += range.bytes;
    front.bytes -= range.bytes;
    if (front.bytes == 0) terms.todo.pop_front();
    return Fetch(range);
  };
  std::unique_ptr<Fetching> next = take();
  while (!over_) {
    if (next == nullptr) {
      TG_RETURN_IF_ERROR(TakeMessage(terms));
      next = take();  // what has been refused
      continue;
    }
    const std::unique_ptr<Fetching> chunk = std::move(next);
    while (!over_ && terms.credit < chunk->range.bytes) TG_RETURN_IF_ERROR(TakeMessage(terms));
    if (over_) break;
    next = take();
    TG_RETURN_IF_ERROR(SendChunk(terms, chunk->range, *chunk));
  }
  return absl::OkStatus();
}

absl::Status PeerSend::SendChunk(Terms& terms, ByteRange range, Fetching& fetched) {
  TG_RETURN_IF_ERROR(Await(fetched));
  TG_RETURN_IF_ERROR(fetched.result->bytes.status());
  // Nobody pays for what is sent again.
  if (sent_ > kMostTimes * request_.bytes->bytes() + patience_.again) {
    return absl::DataLossError(StrCat("the other server has taken ", sent_, " bytes of ",
                                      request_.bytes->bytes(), " and still misses some"));
  }
  const std::byte* const data = fetched.result->bytes->data;
  v1::TransferRequest request;
  v1::Chunk& chunk = *request.mutable_upload();
  chunk.set_transfer(request_.transfer);
  chunk.set_offset(range.offset);
  chunk.set_bytes(static_cast<uint32_t>(range.bytes));
  chunk.set_checksum(ChecksumOf(terms.checksum, data, range.bytes));
  terms.credit -= range.bytes;
  sent_ += range.bytes;
  sent_any_ = true;
  TG_RETURN_IF_ERROR(SendFrame(*socket_, request.SerializeAsString(), {data, range.bytes}));
  metrics_->Add(Metric::kPeerBytesSent, static_cast<int64_t>(range.bytes));
  return absl::OkStatus();
}

absl::Status PeerSend::TakeMessage(Terms& terms) {
  TG_RETURN_IF_ERROR(socket_->AwaitInput());
  TG_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame(*socket_, kMaxDataHeadBytes, 0));
  v1::TransferResponse response;
  if (!response.ParseFromString(frame.head)) return Internal("not a TransferResponse");
  switch (response.what_case()) {
    case v1::TransferResponse::kCredit: {
      const uint64_t bytes = response.credit().bytes();
      if (bytes == 0 || bytes > terms.most_credit - terms.credit) {
        return Internal("the other server gave back ", bytes, " bytes of credit, of which ",
                        terms.most_credit - terms.credit, " were used");
      }
      terms.credit += bytes;
      return absl::OkStatus();
    }
    case v1::TransferResponse::kRefused:
      return TakeRefusal(terms, response.refused());
    case v1::TransferResponse::kEnded:
      over_ = Ended(response.ended());
      return absl::OkStatus();
    default:
      return Internal("the message has no field that is expected of the other server");
  }
}

absl::Status PeerSend::TakeRefusal(Terms& terms, const v1::Refused& refused) {
  const absl::Status why(static_cast<absl::StatusCode>(refused.code()),
                         ToAbsl(Clip(refused.message(), 512)));
  if (absl::IsNotFound(why) && ++errors_ <= kMostErrors) return absl::OkStatus();  // Ended follows
  const uint64_t all = request_.bytes->bytes();
  if (refused.offset() > all || refused.bytes() > all - refused.offset() || refused.bytes() == 0) {
    return Internal("the other server refused a chunk that was not sent");
  }
  const bool again = absl::IsDataLoss(why) || absl::IsUnavailable(why);
  if (!again || ++errors_ > kMostErrors) {
    return absl::DataLossError(
        StrCat("the other server has refused chunks: ", ToStd(why.message())));
  }
  terms.todo.push_front({refused.offset(), refused.bytes()});
  return absl::OkStatus();
}

}  // namespace telegrad
