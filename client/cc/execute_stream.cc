// Ids are given when an operation is queued, so the queue's order is the order of the ids and
// answers meet pending_ from the front. An answer acknowledges every earlier operation that has
// none of its own.
//
// Calls into gRPC are made without the mutex, and so is the next message, for which a file may be
// read; starting_ counts threads between their decision and the call, so that the hold on the call
// is not released under them. The front of queue_ belongs to the thread that set writing_.
#include "client/cc/execute_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/status.h"
#include "engine/wire/envelope.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

constexpr size_t kMaxQueued = 1024;      // operations not sent yet
constexpr size_t kMaxPending = 16384;    // operations not acknowledged yet
constexpr int kMaxSilent = 1024;         // then a Sync is sent, so that acknowledgements come
constexpr size_t kCopiedPayload = 4096;  // shorter ones are not worth a slice of their own
constexpr size_t kGatheredRoom = 4;  // operations as long as a message's first have room at once
constexpr int kMaxHeld = 32;         // messages that go out together

uint64_t NumMessages(bool chunked, uint64_t bytes) {
  return chunked ? std::max<uint64_t>((bytes + kChunkBytes - 1) / kChunkBytes, 1) : 1;
}

}  // namespace

ExecuteStream::ExecuteStream(Connection& connection, const SessionOptions& options,
                             TransferMeter* meter)
    : connection_(connection),
      options_(options),
      meter_(meter),
      call_(std::make_shared<ExecuteOverGrpc>(this, connection, options.resumable,
                                              /*wait_for_ready=*/false)),
      broken_at_(std::chrono::steady_clock::now()) {
  call_->Start();
  call_->Read(&incoming_);
  Pump();
  if (options_.resumable) keeper_ = std::thread([this] { Keep(); });
}

ExecuteStream::~ExecuteStream() {
  pump_later_->Forget();
  Pump();
  const bool in_order = EndIfIdle();
  {
    MutexLock lock(mutex_);
    closing_ = true;
    if (unary_ != nullptr) unary_->TryCancel();
    if (opener_ != nullptr) opener_->Cancel();
  }
  wake_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  call_->TryCancel();
  bool between;
  {
    ReleasableLock lock(mutex_);
    while (!done_ && !call_done_) changed_.wait(lock);
    between = !done_;
  }
  if (between) Finish(absl::CancelledError("the session was closed"));
  if (options_.resumable && !in_order) CloseSession();
  outgoing_.Clear();
  sent_.clear();
  call_.reset();  // it keeps what it has not sent for as long as it is there
  slices_->AwaitNone();
}

// If no operation is under way, half-closes the stream, so that the session ends in order and not
// by a broken connection. True if the server has confirmed that.
bool ExecuteStream::EndIfIdle() {
  ExecuteTransport* call;
  {
    MutexLock lock(mutex_);
    const bool waited_for = std::any_of(pending_.begin(), pending_.end(), [](const Pending& p) {
      return !std::holds_alternative<std::monostate>(p.completion) &&
             !std::holds_alternative<Told>(p.completion);
    });
    if (writing_ || call_ended_ || waited_for || NextLocked() != Next::kNothing) return false;
    if (options_.resumable && (!open_ || moving_)) return false;
    writing_ = true;
    closing_ = true;
    ++starting_;
    call = call_.get();
  }
  call->EndWrites();
  {
    MutexLock lock(mutex_);
    --starting_;
  }
  Pump();
  ReleasableLock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!done_ && changed_.wait_until(lock, until) != std::cv_status::timeout) {
  }
  return done_ && ended_in_order_;
}

uint64_t ExecuteStream::NewHandles(uint64_t count) {
  MutexLock lock(mutex_);
  return std::exchange(next_handle_, next_handle_ + count);
}

void ExecuteStream::Abandon(const absl::Status& why) {
  std::shared_ptr<ExecuteTransport> call;
  {
    MutexLock lock(mutex_);
    if (broken_.ok()) {
      broken_ = absl::AbortedError(StrCat("the bytes of a write could not be sent to ",
                                          connection_.address(), ": ", why.message()));
    }
    call = call_;
  }
  call->TryCancel();
  wake_.notify_all();
}

absl::Status ExecuteStream::status(bool take) {
  MutexLock lock(mutex_);
  if (!broken_.ok()) return first_error_.ok() ? broken_ : first_error_;
  return take ? std::exchange(first_error_, absl::OkStatus()) : first_error_;
}

uint64_t ExecuteStream::Send(const char* what, v1::ExecuteRequest&& request, Completion completion,
                             OutPayload payload) {
  uint64_t last;
  {
    ReleasableLock lock(mutex_);
    while (!ended_ && (queued_ >= kMaxQueued || pending_.size() >= kMaxPending)) {
      lock.unlock();
      Burst::Flush();  // for what is waited for here may be put off
      lock.lock();
      if (ended_ || (queued_ < kMaxQueued && pending_.size() < kMaxPending)) break;
      changed_.wait(lock);
    }
    if (ended_ && !failed_) {  // OnDone has the reason
      pending_.push_back({next_id_, next_id_, what, std::move(completion)});
      return 0;
    }
    if (failed_) {
      const absl::Status broken = broken_;
      lock.unlock();
      std::visit(Fail{broken}, completion);
      return 0;
    }
    const bool silent = std::holds_alternative<std::monostate>(completion) ||
                        std::holds_alternative<Told>(completion);
    silent_ = silent ? silent_ + 1 : 0;
    Enqueue(what, std::move(request), std::move(completion), std::move(payload));
    last = next_id_ - 1;
    if (silent_ >= kMaxSilent) {
      v1::ExecuteRequest sync;
      sync.mutable_sync();
      silent_ = 0;
      Enqueue("sync", std::move(sync), Future<Done>(), {});
    }
  }
  if (!Burst::PutOff(pump_later_)) Pump();
  return last;
}

void ExecuteStream::Cancel() { Cancel(0, next_operation() - 1); }

void ExecuteStream::Cancel(uint64_t first, uint64_t last) {
  v1::ExecuteRequest request;
  request.mutable_cancel()->set_first(first);
  request.mutable_cancel()->set_last(last);
  Send("cancel", std::move(request), {});
}

// There is also room where the session is over: then Send does not wait either.
bool ExecuteStream::HasRoom(size_t operations) const {
  constexpr size_t kSync = 1;  // that Send may add
  MutexLock lock(mutex_);
  const size_t more = operations + kSync;
  return ended_ || (queued_ + more <= kMaxQueued && pending_.size() + more <= kMaxPending);
}

uint64_t ExecuteStream::next_operation() const {
  MutexLock lock(mutex_);
  return next_id_;
}

absl::Status ExecuteStream::Over() const {
  MutexLock lock(mutex_);
  return failed_ ? broken_ : absl::OkStatus();
}

void ExecuteStream::Enqueue(const char* what, v1::ExecuteRequest&& request, Completion completion,
                            OutPayload payload) {
  const uint64_t id = next_id_;
  const bool chunked = request.has_write();
  meter_->Ask(payload.left());
  if (const auto* read = std::get_if<ReadTarget>(&completion)) meter_->Ask(read->into.size());
  next_id_ += NumMessages(chunked, payload.left());
  pending_.push_back({id, next_id_ - 1, what, std::move(completion)});
  ++queued_;
  request.set_op_id(id);
  const size_t bytes = request.ByteSizeLong();
  if (!chunked && payload.left() == 0 && bytes <= kCopiedPayload) return Gather(request, bytes);
  queue_.push_back({id, Long{what, std::move(request), std::move(payload), chunked}});
}

// Joins the short operations at the end of the queue, if there are any that have room. The
// request's size was computed last as `bytes`.
void ExecuteStream::Gather(const v1::ExecuteRequest& request, size_t bytes) {
  const int most = connection_.server().gathers ? 1 + kMostGathered : 1;
  auto* gathered = queue_.empty() ? nullptr : std::get_if<Gathered>(&queue_.back().is);
  if (gathered == nullptr || gathered->count >= most ||
      gathered->message.size() >= kGatheredBytes) {
    gathered = &std::get<Gathered>(queue_.emplace_back(Outgoing{request.op_id(), Gathered()}).is);
    gathered->message.reserve(most > 1 ? kGatheredRoom * bytes : bytes);
  } else {
    AppendBytesHead(v1::ExecuteRequest::kGatheredFieldNumber, bytes, &gathered->message);
  }
  const size_t before = gathered->message.size();
  gathered->message.resize(before + bytes);
  request.SerializeWithCachedSizesToArray(
      reinterpret_cast<uint8_t*>(gathered->message.data() + before));
  gathered->last = request.op_id();
  ++gathered->count;
}

// Makes outgoing_ the next message of the operation; true if it is the last one.
bool ExecuteStream::PrepareMessage(uint64_t id, Long& out) {
  OutPayload part;
  const uint64_t left = out.payload.left();
  const uint64_t n = out.chunked ? std::min<uint64_t>(kChunkBytes, left) : left;
  if (const absl::Status read = out.payload.Next(n, chunks_.get(), &part); !read.ok()) {
    // The rest of the content does not come, so what was sent of it must not be computed with: the
    // buffer goes, and operations that name it fail.
    const uint64_t handle = out.request.write().handle();
    (void)RecordError(out.what, id, read.code(), ToStd(read.message()));
    out.request.mutable_free()->add_handles(handle);
    part = {};
    out.payload = {};
  }
  meter_->Move(left - out.payload.left());
  out.request.set_op_id(id);
  std::string head = out.request.SerializeAsString();
  if (!part.bytes.empty()) head = EnvelopeHead(std::move(head), kPayloadField, part.bytes.size());
  const bool last = out.payload.left() == 0;
  if (!last) {
    out.request.mutable_write()->set_offset(out.request.write().offset() + part.bytes.size());
  }
  if (part.bytes.size() <= kCopiedPayload) {
    head.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
    const grpc::Slice slice(head);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
  } else {
    const grpc::Slice slices[] = {grpc::Slice(head),
                                  slices_->Make(part.bytes, std::move(part.keep))};
    outgoing_ = grpc::ByteBuffer(slices, 2);
  }
  return last;
}

ExecuteStream::Next ExecuteStream::NextLocked() const {
  if (writing_ || call_ended_) return Next::kNothing;
  if (!open_sent_) return Next::kOpen;
  if (!options_.resumable) return queue_.empty() ? Next::kNothing : Next::kQueued;
  // Until the session is open, messages that were sent could not be distinguished from lost ones.
  if (!open_ || moving_) return Next::kNothing;
  if (repeat_ < sent_.size()) return Next::kRepeated;
  if (!queue_.empty() && sent_bytes_ < kMaxSentBytes) return Next::kQueued;
  return acknowledges_ ? Next::kAcknowledgement : Next::kNothing;
}

void ExecuteStream::Pump() {
  ReleasableLock lock(mutex_);
  while (true) {
    if (call_ended_ && !released_ && starting_ == 0) {
      released_ = true;
      ExecuteTransport* const call = call_.get();
      lock.unlock();
      call->Release();  // this may be destroyed, too
      return;
    }
    const Next next = NextLocked();
    if (next == Next::kNothing) return;
    ExecuteTransport* const call = call_.get();
    writing_ = true;
    ++starting_;
    switch (next) {
      case Next::kNothing:
      case Next::kOpen:
        PrepareOpen();
        break;
      case Next::kRepeated:
        outgoing_ = sent_[repeat_++].message;
        break;
      case Next::kAcknowledgement:
        PrepareAcknowledgement();
        break;
      case Next::kQueued:
        PrepareQueued();
        break;
    }
    // Short messages that have one behind them go out with it.
    const bool follows = repeat_ < sent_.size() || !queue_.empty();
    const bool held =
        next != Next::kOpen && follows && held_ < kMaxHeld && outgoing_.Length() <= kCopiedPayload;
    held_ = held ? held_ + 1 : 0;
    lock.unlock();
    if (call->Write(outgoing_, held)) Written();
    lock.lock();
    --starting_;
  }
}

void ExecuteStream::PopQueued(size_t operations) {
  queue_.pop_front();
  const bool was_full = queued_ >= kMaxQueued;
  queued_ -= operations;
  if (was_full && queued_ < kMaxQueued) changed_.notify_all();
}

// Makes outgoing_ the message of short operations at the front of the queue.
uint64_t ExecuteStream::PrepareGathered() {
  Gathered& gathered = std::get<Gathered>(queue_.front().is);
  if (options_.resumable) {
    // Of a message of fields in any order, this is the first operation's.
    AppendInteger(v1::ExecuteRequest::kAcknowledgedFieldNumber, AcknowledgedLocked(),
                  &gathered.message);
  }
  const grpc::Slice slice(gathered.message);
  outgoing_ = grpc::ByteBuffer(&slice, 1);
  const uint64_t last = gathered.last;
  PopQueued(static_cast<size_t>(gathered.count));
  return last;
}

uint64_t ExecuteStream::PrepareLong() {
  Outgoing& front = queue_.front();
  Long& operation = std::get<Long>(front.is);
  const uint64_t id = front.id++;
  if (options_.resumable) {
    operation.request.set_acknowledged(AcknowledgedLocked());
  }
  mutex_.unlock();
  const bool last = PrepareMessage(id, operation);
  if (last) operation.payload = {};  // the caller's memory goes without the lock
  mutex_.lock();
  if (last) PopQueued(1);
  return id;
}

void ExecuteStream::PrepareQueued() {
  const bool is_short = std::holds_alternative<Gathered>(queue_.front().is);
  const uint64_t id = is_short ? PrepareGathered() : PrepareLong();
  if (!options_.resumable) return;
  const auto bytes = static_cast<int64_t>(outgoing_.Length());
  sent_.push_back({id, outgoing_, bytes});
  repeat_ = sent_.size();
  sent_bytes_ += bytes;
  if (sent_bytes_ < kMaxSentBytes / 2) return;
  keep_alive_at_ = {};
  wake_.notify_all();
}

void ExecuteStream::Written() {
  grpc::ByteBuffer sent;  // lets go of the caller's memory
  MutexLock lock(mutex_);
  sent.Swap(&outgoing_);
  writing_ = false;
}

void ExecuteStream::OnWriteDone(bool ok) {
  if (!ok) return;  // the end of reading follows
  Written();
  Pump();
}

void ExecuteStream::OnReadDone(ExecuteTransport& transport, bool ok) {
  absl::Status status = ok ? Receive() : absl::OkStatus();
  if (ok && status.ok()) {
    transport.Read(&incoming_);
    if (options_.resumable) Pump();
    return;
  }
  {
    MutexLock lock(mutex_);
    if (!status.ok() && broken_.ok()) broken_ = status;
    if (broken_.ok() && !options_.resumable) {
      broken_ = absl::UnavailableError("the session is ending");
    }
    call_ended_ = true;
    ended_ = !broken_.ok();
    changed_.notify_all();
  }
  if (ok) transport.TryCancel();
  transport.Finish();
  Pump();
}

void ExecuteStream::OnDone(const absl::Status& status) {
  absl::Status why = status.ok() ? absl::UnavailableError("the session was ended") : status;
  {
    MutexLock lock(mutex_);
    ended_in_order_ = status.ok();
    if (MayResumeLocked(&why)) {
      call_done_ = true;
      wake_.notify_all();
      changed_.notify_all();
      return;
    }
  }
  Finish(why);
}

// Completes waiting operations with an error, which states whether they may have run.
void ExecuteStream::Finish(const absl::Status& why) {
  std::deque<Pending> pending;
  std::deque<Outgoing> queue;
  uint64_t first_unsent;
  absl::Status broken;
  {
    MutexLock lock(mutex_);
    if (broken_.ok() || absl::IsUnavailable(broken_)) {
      broken_ = absl::Status(why.code(), ToAbsl(StrCat("the session with ", connection_.address(),
                                                       " is over: ", ToStd(why.message()))));
    }
    broken = broken_;
    ended_ = true;
    failed_ = true;
    pending.swap(pending_);
    queue.swap(queue_);
    first_unsent = queue.empty() ? next_id_ : queue.front().id;
  }
  for (Pending& p : pending) {
    absl::Status status = broken;
    if (options_.resumable) {
      const bool unsent = p.first >= first_unsent;
      status = absl::Status(unsent ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnknown,
                            ToAbsl(StrCat("operation ", p.first, " (", p.what,
                                          unsent ? ") was not" : ") may have been",
                                          " carried out: ", ToStd(broken.message()))));
    }
    std::visit(Fail{std::move(status)}, p.completion);
  }
  ticket_.Set(broken);
  pending.clear();
  queue.clear();
  MutexLock lock(mutex_);
  done_ = true;
  changed_.notify_all();
  wake_.notify_all();
}

}  // namespace telegrad
