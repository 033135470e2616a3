// Keeps the list of unfinished transfers and the streams that carry them: gives each stream the
// next chunk or pull, and opens streams in place of those that broke, after a growing pause.
#include "client/cc/bulk_transfers.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "client/cc/grpc_bulk_stream.h"
#include "client/cc/socket_bulk_stream.h"
#include "engine/base/status.h"
#include "telegrad/v1/data.grpc.pb.h"

namespace telegrad {
namespace {

// Asked for at a time.
constexpr uint64_t kPullBytes = 8 << 20;
constexpr std::chrono::milliseconds kFirstBulkPause{20}, kLongestBulkPause{1000};

// Whether another stream would end with the same error.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:  // until the server has noticed the broken stream
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
      return false;
    default:
      return true;
  }
}

}  // namespace

BulkTransfers::BulkTransfers(Connection* connection, Future<SessionTicket> ticket,
                             TransferMeter* meter, std::function<void(const absl::Status&)> broken)
    : connection_(connection),
      meter_(meter),
      broken_(std::move(broken)),
      sockets_(!connection->server().bulk_address.empty()),
      slots_(static_cast<size_t>(std::max(1, connection->options().data_streams))) {
  ticket.Then([this](const absl::StatusOr<SessionTicket>& t) {
    std::function<void()> tell;
    {
      MutexLock lock(mutex_);
      if (t.ok()) {
        ticket_ = *t;
      } else {
        tell = FailLocked(t.status());
      }
      changed_.notify_all();
    }
    if (tell) tell();
  });
}

BulkTransfers::~BulkTransfers() { Close(); }

void BulkTransfers::Close() {
  std::map<uint64_t, JobRef> jobs;
  std::vector<Slot> slots;
  std::thread keeper;
  absl::Status failed;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    if (failed_.ok()) failed_ = absl::CancelledError("the session has ended");
    failed = failed_;
    keeper.swap(keeper_);
    jobs.swap(jobs_);
    if (asks_ != nullptr) asks_->TryCancel();
    changed_.notify_all();
  }
  if (keeper.joinable()) keeper.join();
  {
    MutexLock lock(mutex_);
    slots.swap(slots_);
  }
  for (Slot& slot : slots) {
    if (slot.stream != nullptr) slot.stream->Cancel();
  }
  for (Slot& slot : slots) {
    if (slot.stream != nullptr) slot.stream->Drain();
  }
  for (const auto& [transfer, job] : jobs) {
    if (job->done) job->done->Set(failed);
  }
}

void BulkTransfers::Upload(uint64_t transfer, std::span<const std::byte> data,
                           std::shared_ptr<const void> keep) {
  auto job = std::make_shared<Job>();
  job->transfer = transfer;
  job->data = data;
  job->keep = std::move(keep);
  job->todo.push_back({0, data.size()});
  meter_->Ask(data.size());
  Add(std::move(job));
}

void BulkTransfers::EndUpload(uint64_t transfer, const Future<Done>& acknowledged) {
  acknowledged.Then([this, transfer](const absl::StatusOr<Done>&) {
    JobRef ended;  // goes without the lock, with the memory that it was sent from
    ReleasableLock lock(mutex_);
    const auto it = jobs_.find(transfer);
    if (it == jobs_.end()) return;
    ended = std::move(it->second);
    jobs_.erase(it);
    // Where the server has refused it, or has got it twice, a chunk may still be on its way; the
    // memory that it is sent from is the caller's again after this.
    changed_.wait(lock, [&] { return ended->sending == 0; });
  });
}

void BulkTransfers::Download(uint64_t transfer, std::span<std::byte> into,
                             std::shared_ptr<LentMemory> lent, const Future<Done>& ready,
                             Future<Done> done) {
  auto job = std::make_shared<Job>();
  job->transfer = transfer;
  job->into = into;
  job->lent = std::move(lent);
  job->done = done;
  job->todo.push_back({0, into.size()});
  meter_->Ask(into.size());
  ready.Then([this, job = std::move(job)](const absl::StatusOr<Done>& answer) {
    if (answer.ok()) {
      Add(job);
    } else {
      job->done->Set(answer.status());
    }
  });
}

void BulkTransfers::Add(JobRef job) {
  absl::Status failed;
  {
    MutexLock lock(mutex_);
    failed = failed_;
    if (failed_.ok() && !closing_) {
      jobs_[job->transfer] = job;
      if (!keeper_.joinable()) keeper_ = std::thread([this] { Keep(); });
      changed_.notify_all();
      job = nullptr;
    }
  }
  if (job != nullptr && job->done) job->done->Set(failed);
  Kick();
}

void BulkTransfers::Kick() {
  std::vector<std::shared_ptr<BulkStream>> streams;
  {
    MutexLock lock(mutex_);
    for (const Slot& slot : slots_) {
      if (slot.stream != nullptr) streams.push_back(slot.stream);
    }
  }
  for (const auto& stream : streams) stream->Kick();
}

// The first range of a job's that has something, up to `most` bytes of it.
std::optional<BulkTransfers::Sent> BulkTransfers::NextChunk(uint64_t credit, uint64_t chunk_bytes) {
  for (const auto& [transfer, job] : jobs_) {
    if (job->done || job->todo.empty()) continue;
    TransferRange& front = job->todo.front();
    const uint64_t n = std::min(front.bytes, chunk_bytes);
    if (n > credit) return std::nullopt;
    const Sent sent{job, {front.offset, n}};
    front.offset += n;
    front.bytes -= n;
    if (front.bytes == 0) job->todo.pop_front();
    meter_->Move(n);
    return sent;
  }
  return std::nullopt;
}

std::optional<BulkTransfers::Sent> BulkTransfers::NextPull() {
  for (const auto& [transfer, job] : jobs_) {
    if (!job->done || job->todo.empty()) continue;
    TransferRange& front = job->todo.front();
    const uint64_t n = std::min(front.bytes, kPullBytes);
    const Sent sent{job, {front.offset, n}};
    front.offset += n;
    front.bytes -= n;
    if (front.bytes == 0) job->todo.pop_front();
    return sent;
  }
  return std::nullopt;
}

void BulkTransfers::EndLocked(uint64_t transfer) { jobs_.erase(transfer); }

// Downloads get their result. An upload that cannot complete would block the session, so it is
// reported.
std::function<void()> BulkTransfers::FailLocked(const absl::Status& status) {
  if (!failed_.ok()) return [] {};
  failed_ = status;
  std::vector<std::function<void()>> tell;
  bool upload = false;
  for (const auto& [transfer, job] : jobs_) {
    if (job->done) tell.push_back(FailDownloadLocked(job, status));
    upload = upload || !job->done;
  }
  // The memory of uploads goes with what is returned, without the lock.
  auto jobs = std::make_shared<std::map<uint64_t, JobRef>>(std::exchange(jobs_, {}));
  return [this, jobs = std::move(jobs), tell = std::move(tell), upload, status] {
    for (const auto& told : tell) told();
    if (upload) broken_(status);
  };
}

// The future fails only after the last writer to the memory is done, because then the caller may
// use it.
std::function<void()> BulkTransfers::FailDownloadLocked(const JobRef& job,
                                                        const absl::Status& status) {
  if (job->failed) return [] {};
  job->failed = status;
  if (job->writing > 0) return [] {};
  return [job, status] { job->done->Set(status); };
}

void BulkTransfers::Failed(const JobRef& job, const absl::Status& status) {
  std::function<void()> tell;
  {
    MutexLock lock(mutex_);
    if (job->done) {
      EndLocked(job->transfer);
      releases_.push_back(job->transfer);
      tell = FailDownloadLocked(job, status);
    } else {
      tell = FailLocked(status);
    }
  }
  tell();
}

bool BulkTransfers::IsWanted(const Slot& slot) const {
  return slot.stream == nullptr && slot.dead.ok() && ticket_ && failed_.ok();
}

bool BulkTransfers::HasWork() const {
  for (const Slot& slot : slots_) {
    if (slot.stream != nullptr ? slot.stream->done()
                               : IsWanted(slot) && slot.next <= Clock::now()) {
      return true;
    }
  }
  return closing_;
}

void BulkTransfers::Keep() {
  ReleasableLock lock(mutex_);
  while (!closing_) {
    Clock::time_point next = Clock::time_point::max();
    for (Slot& slot : slots_) {
      if (slot.stream != nullptr && slot.stream->done()) Mend(slot);
      if (IsWanted(slot) && slot.next <= Clock::now()) Open(slot);
      if (IsWanted(slot)) next = std::min(next, slot.next);
    }
    const bool dead =
        std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.dead.ok(); });
    if (dead && failed_.ok()) {
      auto tell = FailLocked(slots_.front().dead);
      lock.unlock();
      tell();
      tell = nullptr;
      lock.lock();
    }
    while (!HasWork()) {
      if (next == Clock::time_point::max()) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, next) == std::cv_status::timeout) {
        break;
      }
    }
  }
}

void BulkTransfers::Open(Slot& slot) {
  const SessionTicket ticket = *ticket_;
  const bool socket = sockets_;
  mutex_.unlock();
  std::shared_ptr<BulkStream> stream;
  absl::Status status;
  if (socket) {
    stream = std::make_shared<SocketBulkStream>(this, ticket);
  } else {
    auto channel = connection_->OpenDataChannel();
    status = channel.status();
    if (status.ok()) stream = std::make_shared<GrpcBulkStream>(this, *std::move(channel), ticket);
  }
  mutex_.lock();
  slot.stream = stream;
  slot.dead = status;
  if (stream == nullptr) return;
  mutex_.unlock();
  stream->Kick();  // for what has come since it looked
  mutex_.lock();
}

// Repeats the transfers of a stream that has ended. Its chunks and pulls are repeated only after
// the transport has released the memory, so that completed uploads are not in use any more.
void BulkTransfers::Mend(Slot& slot) {
  const std::shared_ptr<BulkStream> stream = std::move(slot.stream);
  const absl::Status status = stream->status();
  const bool admitted = stream->attached() || !stream->optional();
  if (stream->optional() && stream->attached()) sockets_worked_ = true;
  const auto now = Clock::now();
  if (stream->attached() || !slot.broken_at) slot.broken_at = now;
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - *slot.broken_at);
  const auto patience = absl::ToChronoNanoseconds(connection_->options().timeout);
  const bool hopeless = IsFinal(status) || since > patience;
  if (!admitted && (hopeless || !sockets_worked_)) {
    // What is in the way of one socket is in the way of the next; gRPC may go on.
    sockets_ = false;
    slot.broken_at.reset();
  } else {
    if (hopeless) slot.dead = status;
    slot.next = now + std::clamp(since, kFirstBulkPause, kLongestBulkPause);
  }
  std::map<uint64_t, std::vector<TransferRange>> sent;
  {
    const BulkStream::Left left = stream->TakeLeft();
    for (const SentRange& chunk : left.chunks) sent[chunk.transfer].push_back(chunk.range);
    for (const Sent& pull : left.pulls) pull.job->todo.push_front(pull.range);
    releases_.insert(releases_.end(), left.releases.begin(), left.releases.end());
  }
  mutex_.unlock();
  stream->Drain();
  mutex_.lock();
  for (auto& [transfer, ranges] : sent) {
    if (closing_ || !jobs_.contains(transfer)) continue;
    const auto missing = StillMissing(transfer, std::move(ranges));
    const auto it = jobs_.find(transfer);
    if (it == jobs_.end()) continue;
    for (const TransferRange& range : missing) meter_->Repeat(range.bytes);
    auto& todo = it->second->todo;
    todo.insert(todo.begin(), missing.begin(), missing.end());
  }
  mutex_.unlock();
  Kick();
  mutex_.lock();
}

// The parts of an upload that were sent over a broken stream and that the server has not received.
std::vector<TransferRange> BulkTransfers::StillMissing(uint64_t transfer,
                                                       std::vector<TransferRange> sent) {
  v1::StatUploadRequest request;
  request.set_token(ticket_->token);
  request.set_epoch(ticket_->epoch);
  request.set_transfer(transfer);
  v1::StatUploadResponse response;
  grpc::ClientContext context;
  connection_->Authorize(&context).IgnoreError();  // then the server says so
  context.set_deadline(absl::ToChronoTime(absl::Now() + connection_->options().timeout));
  asks_ = &context;
  mutex_.unlock();
  const grpc::Status status =
      v1::Data::NewStub(connection_->channel())->StatUpload(&context, request, &response);
  mutex_.lock();
  asks_ = nullptr;
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return {};  // all of it is there
  if (!status.ok()) return sent;  // the server takes again what it has
  std::vector<TransferRange> missing;
  for (const TransferRange& range : sent) {
    for (const v1::ByteRange& m : response.missing()) {
      const uint64_t begin = std::max(range.offset, m.offset());
      const uint64_t end = std::min(range.offset + range.bytes, m.offset() + m.bytes());
      if (begin < end) missing.push_back({begin, end - begin});
    }
  }
  return missing;
}

}  // namespace telegrad
