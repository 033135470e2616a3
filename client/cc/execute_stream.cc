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
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

RunInfo ToRunInfo(const v1::RunResult& run) {
  RunInfo info{.cached = run.cached(),
               .kernels = static_cast<int>(run.kernels()),
               .device_ns = static_cast<int64_t>(run.device_ns()),
               .compile_ns = static_cast<int64_t>(run.compile_ns()),
               .trace = nullptr};
  if (!run.has_trace()) return info;
  auto trace = std::make_shared<RunEvents>();
  trace->dropped = static_cast<int64_t>(run.trace().dropped());
  trace->end_ns = static_cast<int64_t>(run.trace().end_ns());
  for (const v1::TraceEvent& e : run.trace().events()) {
    trace->events.push_back({.copy = e.kind() == v1::TraceEvent::COPY,
                             .name = e.name(),
                             .queue = e.queue(),
                             .begin_ns = e.begin_ns(),
                             .duration_ns = static_cast<int64_t>(e.duration_ns()),
                             .flops = e.flops(),
                             .bytes = e.bytes(),
                             .reasons = {e.reasons().begin(), e.reasons().end()}});
  }
  info.trace = std::move(trace);
  return info;
}

constexpr size_t kMaxQueued = 1024;      // operations not sent yet
constexpr size_t kMaxPending = 16384;    // operations not acknowledged yet
constexpr int kMaxSilent = 1024;         // then a Sync is sent, so that acknowledgements come
constexpr size_t kCopiedPayload = 4096;  // shorter ones are not worth a slice of their own
constexpr int kMaxHeld = 32;             // messages that go out together

struct Fail {
  absl::Status status;
  void operator()(std::monostate) const {}
  void operator()(const ReadTarget& target) const { target.done.Set(status); }
  template <typename T>
  void operator()(const Future<T>& future) const {
    future.Set(status);
  }
};

uint64_t NumMessages(bool chunked, uint64_t bytes) {
  return chunked ? std::max<uint64_t>((bytes + kChunkBytes - 1) / kChunkBytes, 1) : 1;
}

}  // namespace

ExecuteStream::ExecuteStream(Connection& connection) : address_(connection.address()) {
  grpc::GenericStub stub(connection.channel());
  // Without its token the server will refuse the stream, which says enough.
  connection.Authorize(&context_).IgnoreError();
  stub.PrepareBidiStreamingCall(&context_, "/telegrad.v1.Compute/Execute", {}, this);
  AddHold();  // for writes that are started outside of gRPC's callbacks
  StartRead(&incoming_);
  StartCall();
  v1::ExecuteRequest open;
  open.mutable_open()->set_protocol(connection.server().protocol);
  open.mutable_open()->set_client(connection.options().client);
  Send("open", std::move(open), ticket_);
}

ExecuteStream::~ExecuteStream() {
  EndIfIdle();
  context_.TryCancel();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  outgoing_.Clear();
  std::unique_lock lock(in_use_->mutex);
  in_use_->changed.wait(lock, [this] { return in_use_->slices == 0; });
}

// Where nothing is under way the server is told that nothing follows, so that it sees a session
// that ended and not one that broke off.
void ExecuteStream::EndIfIdle() {
  {
    std::lock_guard lock(mutex_);
    const bool waited_for = std::any_of(pending_.begin(), pending_.end(), [](const Pending& p) {
      return !std::holds_alternative<std::monostate>(p.completion);
    });
    if (writing_ || ended_ || !queue_.empty() || waited_for) return;
    writing_ = true;
    ++starting_;
  }
  StartWritesDone();
  {
    std::lock_guard lock(mutex_);
    --starting_;
  }
  Pump();
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return done_; });
}

uint64_t ExecuteStream::NewHandles(uint64_t count) {
  std::lock_guard lock(mutex_);
  return std::exchange(next_handle_, next_handle_ + count);
}

void ExecuteStream::Abandon(const absl::Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (broken_.ok()) {
      broken_ = absl::AbortedError(
          StrCat("the bytes of a write could not be brought to ", address_, ": ", why.message()));
    }
  }
  context_.TryCancel();
}

absl::Status ExecuteStream::status(bool take) {
  std::lock_guard lock(mutex_);
  if (!broken_.ok()) return first_error_.ok() ? broken_ : first_error_;
  return take ? std::exchange(first_error_, absl::OkStatus()) : first_error_;
}

void ExecuteStream::Send(const char* what, v1::ExecuteRequest request, Completion completion,
                         OutPayload payload) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return ended_ || (queue_.size() < kMaxQueued && pending_.size() < kMaxPending);
    });
    if (ended_ && !failed_) {  // OnDone will know why
      pending_.push_back({next_id_, next_id_, what, std::move(completion)});
      return;
    }
    if (failed_) {
      const absl::Status broken = broken_;
      lock.unlock();
      std::visit(Fail{broken}, completion);
      return;
    }
    silent_ = std::holds_alternative<std::monostate>(completion) ? silent_ + 1 : 0;
    Enqueue(what, std::move(request), std::move(completion), std::move(payload), lock);
    if (silent_ >= kMaxSilent) {
      v1::ExecuteRequest sync;
      sync.mutable_sync();
      silent_ = 0;
      Enqueue("sync", std::move(sync), Future<Done>(), {}, lock);
    }
  }
  Pump();
}

void ExecuteStream::Enqueue(const char* what, v1::ExecuteRequest request, Completion completion,
                            OutPayload payload, std::unique_lock<std::mutex>&) {
  Outgoing out{.id = next_id_,
               .what = what,
               .request = std::move(request),
               .payload = std::move(payload),
               .chunked = false};
  out.chunked = out.request.has_write();
  next_id_ += NumMessages(out.chunked, out.payload.left());
  pending_.push_back({out.id, next_id_ - 1, what, std::move(completion)});
  queue_.push_back(std::move(out));
}

grpc::Slice ExecuteStream::PayloadSlice(std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> keep) {
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
  return grpc::Slice(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* holder) { delete static_cast<Holder*>(holder); },
      new Holder{in_use_, std::move(keep)});
}

// Makes outgoing_ the next message of the operation; true if it is the last one.
bool ExecuteStream::PrepareMessage(Outgoing& out) {
  OutPayload part;
  const uint64_t left = out.payload.left();
  const uint64_t n = out.chunked ? std::min<uint64_t>(kChunkBytes, left) : left;
  if (const absl::Status read = out.payload.Next(n, chunks_.get(), &part); !read.ok()) {
    // The rest of the content does not come, so what was sent of it must not be computed with: the
    // buffer goes, and operations that name it fail.
    const uint64_t handle = out.request.write().handle();
    (void)RecordError(out.what, out.id, read.code(), ToStd(read.message()));
    out.request.mutable_free()->add_handles(handle);
    part = {};
    out.payload = {};
  }
  out.request.set_op_id(out.id++);
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
                                  PayloadSlice(part.bytes, std::move(part.keep))};
    outgoing_ = grpc::ByteBuffer(slices, 2);
  }
  return last;
}

void ExecuteStream::Pump() {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool write = !writing_ && !ended_ && !queue_.empty();
    const bool release = ended_ && !released_ && starting_ == 0;
    if (release) {
      released_ = true;
      lock.unlock();
      RemoveHold();  // the object may be gone after this
      return;
    }
    if (!write) return;
    writing_ = true;
    ++starting_;
    Outgoing& front = queue_.front();
    lock.unlock();
    const bool last = PrepareMessage(front);
    lock.lock();
    if (last) {
      queue_.pop_front();
      if (queue_.size() + 1 == kMaxQueued) changed_.notify_all();
    }
    // Short messages that have one behind them go out with it.
    grpc::WriteOptions options;
    if (!queue_.empty() && held_ < kMaxHeld && outgoing_.Length() <= kCopiedPayload) {
      options.set_buffer_hint();
      ++held_;
    } else {
      held_ = 0;
    }
    lock.unlock();
    StartWrite(&outgoing_, options);
    lock.lock();
    --starting_;
  }
}

void ExecuteStream::OnWriteDone(bool ok) {
  if (!ok) return;        // the end of reading follows
  grpc::ByteBuffer sent;  // lets go of the caller's memory
  {
    std::lock_guard lock(mutex_);
    sent.Swap(&outgoing_);
    writing_ = false;
  }
  sent.Clear();
  Pump();
}

void ExecuteStream::OnReadDone(bool ok) {
  absl::Status status = ok ? Receive() : absl::OkStatus();
  if (ok && status.ok()) {
    StartRead(&incoming_);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    if (!status.ok() && broken_.ok()) broken_ = status;
    if (broken_.ok()) broken_ = absl::UnavailableError("the session is ending");
    ended_ = true;
    changed_.notify_all();
  }
  if (ok) context_.TryCancel();
  Pump();
}

void ExecuteStream::OnDone(const grpc::Status& status) {
  std::deque<Pending> pending;
  std::deque<Outgoing> queue;
  absl::Status broken;
  {
    std::lock_guard lock(mutex_);
    if (absl::IsUnavailable(broken_)) {
      const std::string why = status.ok() ? "it was ended" : status.error_message();
      const auto code = status.ok() ? absl::StatusCode::kUnavailable
                                    : static_cast<absl::StatusCode>(status.error_code());
      broken_ = absl::Status(code, StrCat("the session with ", address_, " is over: ", why));
    }
    broken = broken_;
    failed_ = true;
    pending.swap(pending_);
    queue.swap(queue_);
  }
  for (Pending& p : pending) std::visit(Fail{broken}, p.completion);
  queue.clear();
  std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

// Handles the message in incoming_. An error is a violation of the protocol and ends the session.
absl::Status ExecuteStream::Receive() {
  std::vector<grpc::Slice> slices;
  if (!incoming_.Dump(&slices).ok()) return Internal("a message could not be read");
  incoming_.Clear();
  std::vector<Piece> pieces;
  for (const grpc::Slice& slice : slices) pieces.emplace_back(slice.begin(), slice.size());
  Envelope envelope;
  TG_RETURN_IF_ERROR(SplitEnvelope(pieces, kPayloadField, &envelope));
  v1::ExecuteResponse response;
  if (!response.ParseFromString(envelope.head)) return Internal("not an ExecuteResponse");

  Pending* pending;
  {
    std::lock_guard lock(mutex_);
    while (!pending_.empty() && pending_.front().last < response.op_id()) {
      if (!std::holds_alternative<std::monostate>(pending_.front().completion)) {
        return Internal("operation ", pending_.front().last, " was not answered");
      }
      pending_.pop_front();
    }
    if (pending_.empty() || pending_.front().first > response.op_id()) {
      return Internal("an answer to operation ", response.op_id(), ", which waits for none");
    }
    pending = &pending_.front();  // stays there: others only append
  }
  bool finished = true;
  TG_RETURN_IF_ERROR(Complete(*pending, response, envelope, &finished));
  if (finished && pending->last == response.op_id()) {
    std::lock_guard lock(mutex_);
    pending_.pop_front();
    changed_.notify_all();
  }
  return absl::OkStatus();
}

absl::Status ExecuteStream::RecordError(const char* what, uint64_t id, absl::StatusCode code,
                                        std::string_view message) {
  const absl::Status status(code, ToAbsl(StrCat("operation ", id, " (", what, "): ", message)));
  std::lock_guard lock(mutex_);
  if (first_error_.ok()) first_error_ = status;
  return status;
}

absl::Status ExecuteStream::Complete(Pending& pending, const v1::ExecuteResponse& response,
                                     const Envelope& envelope, bool* finished) {
  if (response.status().code() != 0) {
    const auto code = static_cast<absl::StatusCode>(response.status().code());
    const absl::Status error =
        RecordError(pending.what, response.op_id(), code, response.status().message());
    std::visit(Fail{error}, pending.completion);
    return absl::OkStatus();
  }
  if (auto* target = std::get_if<ReadTarget>(&pending.completion)) {
    return TakeChunk(*target, response, envelope, finished);
  }
  if (auto* done = std::get_if<Future<Done>>(&pending.completion)) {
    const absl::Status first = status(/*take=*/false);
    done->Set(first.ok() ? absl::StatusOr<Done>(Done{}) : first);
  } else if (auto* has = std::get_if<Future<bool>>(&pending.completion)) {
    has->Set(response.has().has());
  } else if (auto* put = std::get_if<Future<Digest>>(&pending.completion)) {
    Digest digest;
    if (!Digest::FromBytes(response.put().hash(), &digest)) return Internal("a hash of odd length");
    put->Set(digest);
  } else if (auto* ticket = std::get_if<Future<SessionTicket>>(&pending.completion)) {
    ticket->Set(SessionTicket{response.open().token(), response.open().epoch()});
  } else if (auto* run = std::get_if<Future<RunInfo>>(&pending.completion)) {
    run->Set(ToRunInfo(response.run()));
  } else if (auto* import = std::get_if<Future<RemoteModel>>(&pending.completion)) {
    TG_ASSIGN_OR_RETURN(RemoteModel model, ToRemoteModel(response.import()));
    import->Set(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status ExecuteStream::TakeChunk(ReadTarget& target, const v1::ExecuteResponse& response,
                                      const Envelope& envelope, bool* finished) {
  const uint64_t begin = response.read().offset() - static_cast<uint64_t>(target.offset);
  const uint64_t size = target.into.size();
  if (begin > size || envelope.payload_bytes > size - begin) {
    return Internal("operation ", response.op_id(), ": a chunk outside of what was read");
  }
  std::byte* out = target.into.data() + begin;
  for (const Piece& piece : envelope.payload) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
  *finished = response.read().last();
  if (*finished) target.done.Set(Done{});
  return absl::OkStatus();
}

}  // namespace telegrad
