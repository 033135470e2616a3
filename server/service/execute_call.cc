// gRPC allows one read and one write at a time and nothing after Finish. Pump looks at the flags
// under the mutex, decides, and calls gRPC without the lock, because gRPC may call back from
// within; starting_ counts the threads that are between the two, so that nobody finishes meanwhile.
#include "server/service/execute_call.h"

#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/wire/envelope.h"
#include "proto/transport.h"
#include "server/admin/log.h"
#include "server/operations/read.h"
#include "server/service/convert.h"
#include "server/service/operations.h"

namespace telegrad {
namespace {

// Answers that may wait for a client that does not read them.
constexpr size_t kMaxAnswers = 1024;
constexpr int64_t kMaxAnswerBytes = 1 << 20;  // of small reads, which are copies
// Answers that go out together, where so many wait.
constexpr int kMaxHeld = 32;
constexpr size_t kHeldBytes = 4096;  // none that is longer
// For which one message holds up the others that its thread has. Many short operations take less.
constexpr int64_t kLongestAcceptNs = 1'000'000;
// A read is put off once a client has waited for answers so many times in a row; after so many more
// one is not, because a message that comes early is seen only then.
constexpr int kWaits = 3, kPutOff = 32;
// For which it may be put off.
constexpr int64_t kLongestLateNs = 2'000'000;
constexpr size_t kShortMessage = 4096;  // no longer one has a read put off behind it

int64_t CopiedBytes(const Answer& answer) {
  const auto* read = ResultAs<ReadResult>(answer);
  return read != nullptr ? static_cast<int64_t>(read->copy.size()) : 0;
}

// The payload of a received message, in the slices in which the transport delivered it. A short
// slice holds its bytes inside itself, so the slices stay where they are: the vector is moved, its
// elements are not.
class SlicesPayload final : public Payload {
 public:
  SlicesPayload() = default;
  SlicesPayload(std::vector<grpc::Slice> slices, Envelope envelope)
      : slices_(std::move(slices)), envelope_(std::move(envelope)) {}
  int64_t size() const override { return static_cast<int64_t>(envelope_.payload_bytes); }
  void CopyTo(void* to) const override {
    auto* out = static_cast<uint8_t*>(to);
    for (const ByteSpan& piece : envelope_.payload) {
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }

 private:
  std::vector<grpc::Slice> slices_;
  Envelope envelope_;
};

}  // namespace

std::shared_ptr<ExecuteCall> ExecuteCall::Create(SessionRegistry& registry, Caller caller,
                                                 std::string_view traceparent, Tracer* tracer,
                                                 TaskPool* workers) {
  std::shared_ptr<ExecuteCall> call(new ExecuteCall(registry, std::move(caller), tracer, workers));
  if (tracer != nullptr && !traceparent.empty()) {
    call->stream_trace_ = ParseTraceparent(traceparent);
  }
  call->self_ = call;
  return call;
}

void ExecuteCall::Start(OpenCalls<ExecuteCall>::CallSlot slot, const absl::Status& refused) {
  slot_ = std::move(slot);
  if (refused.ok()) {
    Pump();
  } else {
    Abort(refused, /*keep=*/true);
  }
}

void ExecuteCall::Drain() {
  {
    const MutexLock lock(mutex_);
    input_ended_ = true;
    if (end_.ok()) end_ = absl::UnavailableError("the server is shutting down");
  }
  Pump();
}

void ExecuteCall::OnReceived(bool ok) {
  const bool idle = session_ != nullptr && session_->Idle();
  const bool is_short = ok && incoming_.Length() <= kShortMessage;
  bool take;
  {
    const MutexLock lock(mutex_);
    CountWaitLocked(idle && answers_.empty() && is_short);
    if (!ok) input_ended_ = true;
    take = accepting_ = !input_ended_ && !finished_ && !aborted_;
  }
  // reading_ stays set meanwhile, so that nobody else starts a read into incoming_.
  absl::Status status = take ? Accept() : absl::OkStatus();
  if (take && status.ok()) status = AcceptGathered();
  Accepted(std::move(status), /*started=*/0);
}

// A thread of the device, or one that drains the session, does not go into further operations.
void ExecuteCall::AcceptLater() {
  workers_.Post([self = shared_from_this()] { self->Accepted(self->AcceptGathered(), 1); },
                caller_.tenant->share);
}

void ExecuteCall::Accepted(absl::Status status, int started) {
  {
    const MutexLock lock(mutex_);
    reading_ = accepting_ = false;
    if (!gathered_.empty()) waits_ = 0;  // it does not wait with each
    more_ = next_gathered_ < gathered_.size();
    starting_ -= started;
  }
  if (status.ok()) {
    PumpSoon();
  } else {
    Abort(std::move(status), /*keep=*/false);
  }
}

absl::Status ExecuteCall::Accept() {
  ReceivedMessage message(incoming_);
  incoming_.Clear();
  Envelope envelope;
  TG_RETURN_IF_ERROR(
      SplitRequest(message, registry_.limits().head_bytes, "raise --head-bytes", &envelope));
  auto head_bytes = static_cast<int64_t>(envelope.head.size());
  // Before protobuf makes objects of them.
  TG_ASSIGN_OR_RETURN(const int64_t gathered,
                      CountFields(envelope.head, v1::ExecuteRequest::kGatheredFieldNumber));
  if (gathered > kMostGathered) {
    return InvalidArgument(gathered, " operations are gathered in one message; at most ",
                           kMostGathered, " may be");
  }
  if (!request_.ParseFromString(envelope.head)) {
    return InvalidArgument("malformed message: not an ExecuteRequest");
  }
  gathered_.Clear();
  gathered_.Swap(request_.mutable_gathered());
  next_gathered_ = 0;
  if (session_ == nullptr) {
    if (!request_.has_open())
      return FailedPrecondition("the first operation of a stream must be open");
    if (!gathered_.empty()) return InvalidArgument("open is to come in a message of its own");
    return Open(request_.open());
  }
  for (const std::string& one : gathered_) head_bytes -= static_cast<int64_t>(one.size());
  std::unique_ptr<Payload> payload;
  if (TakesData(request_)) {
    payload = std::make_unique<SlicesPayload>(std::move(message.slices), std::move(envelope));
  } else if (envelope.payload_bytes > 0) {
    return InvalidArgument("operation ", request_.op_id(), " takes no data");
  }
  return Take(std::move(payload), head_bytes);
}

absl::Status ExecuteCall::AcceptGathered() {
  const int64_t until = Clock::Steady()->Ns() + kLongestAcceptNs;
  while (next_gathered_ < gathered_.size() && Clock::Steady()->Ns() < until) {
    {
      const MutexLock lock(mutex_);
      if (aborted_ || finished_ || !HasRoomLocked()) break;
    }
    if (session_->Congested()) break;
    const std::string& one = gathered_.Get(next_gathered_++);
    if (!request_.ParseFromString(one)) {
      return InvalidArgument("a gathered operation is not an ExecuteRequest");
    }
    if (request_.gathered_size() > 0 || !request_.data().empty() || request_.has_open()) {
      return InvalidArgument("operation ", request_.op_id(),
                             " is gathered with others: it may not open a session, and has neither "
                             "data nor gathered operations of its own");
    }
    std::unique_ptr<Payload> payload;
    if (TakesData(request_)) payload = std::make_unique<SlicesPayload>();  // of no bytes
    TG_RETURN_IF_ERROR(Take(std::move(payload), static_cast<int64_t>(one.size())));
  }
  return absl::OkStatus();
}

absl::Status ExecuteCall::Take(std::unique_ptr<Payload> payload, int64_t head_bytes) {
  if (request_.acknowledged() > 0) {
    session_->Acknowledge(request_.acknowledged());
    if (request_.op_case() == v1::ExecuteRequest::OP_NOT_SET) return absl::OkStatus();
  }
  if (request_.op_id() <= last_op_) {
    return InvalidArgument("operation ", request_.op_id(), " follows ", last_op_,
                           "; ids must increase");
  }
  last_op_ = request_.op_id();
  if (request_.has_cancel()) {
    session_->Cancel(*this, last_op_, request_.cancel().first(), request_.cancel().last());
    return absl::OkStatus();
  }
  TG_ASSIGN_OR_RETURN(Operation operation, ToOperation(request_, std::move(payload)));
  operation.head_bytes = head_bytes;
  operation.trace = TraceOf(request_);
  return session_->Submit(*this, std::move(operation));
}

// Null if the operation is not to be traced.
std::shared_ptr<OperationTrace> ExecuteCall::TraceOf(const v1::ExecuteRequest& request) {
  if (tracer_ == nullptr) return nullptr;
  const auto own =
      request.traceparent().empty() ? stream_trace_ : ParseTraceparent(request.traceparent());
  const std::optional<TraceContext> context = tracer_->Begin(own);
  if (!context) return nullptr;
  const auto* const field =
      v1::ExecuteRequest::descriptor()->FindFieldByNumber(static_cast<int>(request.op_case()));
  return std::make_shared<OperationTrace>(tracer_, *context,
                                          field == nullptr ? "none" : field->name(),
                                          caller_.tenant->name, session_->terms().id, last_op_);
}

absl::Status ExecuteCall::Open(const v1::Open& open) {
  if (open.protocol() < kProtocolMin || open.protocol() > kProtocolMax) {
    return FailedPrecondition("protocol ", open.protocol(), "; this server supports ", kProtocolMin,
                              " to ", kProtocolMax);
  }
  std::shared_ptr<Session> session;
  if (open.token().empty()) {
    TG_ASSIGN_OR_RETURN(session, registry_.Create(caller_.tenant, open.resumable(), open.lease_ms(),
                                                  shared_from_this()));
    last_op_ = request_.op_id();
    OnAnswer({.id = last_op_, .status = {}, .result = MakeResult(registry_.Describe(*session))});
  } else {
    TG_ASSIGN_OR_RETURN(
        session, registry_.Resume(open.token(), open.epoch(), *caller_.tenant, shared_from_this(),
                                  request_.op_id(), request_.acknowledged()));
  }
  Log(LogLevel::kInfo, open.token().empty() ? "session_opened" : "session_resumed",
      {{"session", session->terms().id},
       {"tenant", caller_.tenant->name},
       {"subject", caller_.principal.subject},
       {"peer", caller_.peer},
       {"client", Clip(open.client(), kMaxLogged)}});
  bool aborted;
  {
    const MutexLock lock(mutex_);
    session_ = session;
    gathers_ = open.gathers();
    aborted = aborted_;
  }
  // The client may have gone before there was a session to leave.
  if (aborted) registry_.Leave(session, *this, /*keep=*/true);
  return absl::OkStatus();
}

void ExecuteCall::OnSent(bool ok) {
  Sent();
  if (ok) {
    Pump();
  } else {
    Abort(absl::CancelledError("the client has disconnected"), /*keep=*/true);
  }
}

void ExecuteCall::Sent() {
  grpc::ByteBuffer sent;  // lets go of the memory that it was sent from
  {
    const MutexLock lock(mutex_);
    sent.Swap(&outgoing_);
    writing_ = false;
  }
}

void ExecuteCall::OnGone() {
  {
    const MutexLock lock(mutex_);
    gone_ = true;
  }
  Abort(absl::CancelledError("the client has disconnected"), /*keep=*/true);
}

void ExecuteCall::OnDetached(const absl::Status& why) { Abort(why, /*keep=*/true); }

// A stream that broke looks at first like one that the client ended; only now it is known which it
// was.
void ExecuteCall::OnOver() {
  bool gone;
  {
    const MutexLock lock(mutex_);
    gone = gone_;
  }
  if (session_ != nullptr) registry_.Leave(session_, *this, /*keep=*/gone);
  self_.reset();
}

void ExecuteCall::OnAnswer(Answer answer) {
  const MutexLock lock(mutex_);
  if (aborted_) return;
  answer_bytes_ += CopiedBytes(answer);
  answers_.push_back(std::move(answer));
}

void ExecuteCall::OnProgress() { PumpSoon(); }

// The answers of operations that came together go together, too.
void ExecuteCall::PumpSoon() {
  bool gathers;
  {
    const MutexLock lock(mutex_);
    gathers = gathers_;
  }
  if (!gathers || !Burst::PutOff(shared_from_this())) Pump();
}

void ExecuteCall::Abort(absl::Status status, bool keep) {
  const std::shared_ptr<ExecuteCall> alive = shared_from_this();
  std::deque<Answer> dropped;
  std::shared_ptr<Session> session;
  {
    const MutexLock lock(mutex_);
    if (!aborted_) end_ = std::move(status);
    aborted_ = true;
    dropped.swap(answers_);
    answer_bytes_ = 0;
    session = session_;
  }
  if (session != nullptr) registry_.Leave(session, *this, keep);
  Pump();
}

void ExecuteCall::Pump() {
  const std::shared_ptr<ExecuteCall> keep = shared_from_this();
  ReleasableLock lock(mutex_);
  while (!finished_) {
    // No operation follows once the input has ended, so that an idle session stays idle.
    const bool ended = input_ended_ && !accepting_;
    const bool waits = !reading_ && answers_.empty();
    const std::shared_ptr<Session> session = session_;
    lock.unlock();
    const bool idle = (ended || waits) && (session == nullptr || session->Idle());
    const bool congested = session != nullptr && session->Congested();
    lock.lock();
    if (finished_) return;

    const bool write = !writing_ && !aborted_ && !answers_.empty();
    const bool take = !reading_ && !input_ended_ && !aborted_ && !congested && HasRoomLocked() &&
                      !PutsOffReadLocked(waits && !idle);
    const bool accept = take && more_, read = take && !more_;
    const bool finish =
        !write && !writing_ && starting_ == 0 && (aborted_ || (ended && idle && answers_.empty()));
    if (!write && !take && !finish) return;
    std::vector<Answer> sent_in_full;  // what they hold is let go without the lock
    grpc::WriteOptions options;
    if (write) {
      writing_ = true;
      sent_in_full = NextMessage();
      // The first carries the stream's metadata, without which it would never count as sent.
      const bool held = std::exchange(begun_, true) && !answers_.empty() && held_ < kMaxHeld &&
                        outgoing_.Length() <= kHeldBytes;
      held_ = held ? held_ + 1 : 0;
      if (held) options.set_buffer_hint();
    }
    if (take) reading_ = true;
    if (accept) accepting_ = true;
    if (finish) finished_ = true;
    ++starting_;
    const absl::Status end = end_;
    lock.unlock();
    if (write && WriteNow(&outgoing_, options)) Sent();
    if (read) StartRead(&incoming_);
    if (finish) return Finish(ToGrpc(end));
    if (accept) AcceptLater();
    sent_in_full.clear();
    lock.lock();
    if (!accept) --starting_;
  }
}

// How many messages in a row came when everything before had been answered, though some of it was
// under way for a while. What was done at once says nothing of a client.
void ExecuteCall::CountWaitLocked(bool waited) {
  if (!waited) {
    waits_ = 0;
  } else if (under_way_ && ++waits_ > kWaits + kPutOff) {
    waits_ = kWaits - 1;
  }
  under_way_ = false;
}

// Whether the next read begins behind the answer. `waits`: the client does, for one that is not
// there yet.
bool ExecuteCall::PutsOffReadLocked(bool waits) {
  if (waits) under_way_ = true;
  if (!waits || waits_ < kWaits || !answers_.empty()) {
    late_until_ns_ = 0;
    return false;
  }
  if (late_until_ns_ != 0) return true;
  const int64_t until = Clock::Steady()->Ns() + kLongestLateNs;
  if (!PrefersLateReads() || !LateReads::PutOff(weak_from_this(), until)) return false;
  late_until_ns_ = until;
  return true;
}

// The answer takes long, and those of the next operations may, too.
void ExecuteCall::ReadNow(int64_t until_ns) {
  {
    const MutexLock lock(mutex_);
    if (late_until_ns_ != until_ns) return;
    waits_ = 0;
  }
  Pump();
}

bool ExecuteCall::HasRoomLocked() const {
  return answers_.size() < kMaxAnswers && answer_bytes_ < kMaxAnswerBytes;
}

// Puts the next message into outgoing_; returns the answers of which nothing is left.
std::vector<Answer> ExecuteCall::NextMessage() {
  std::vector<Answer> sent;
  const auto done = [&]() TG_REQUIRES(mutex_) {
    answer_bytes_ -= CopiedBytes(answers_.front());
    sent.push_back(std::move(answers_.front()));
    answers_.pop_front();
    sent_ = 0;
  };
  std::string message, one;
  while (gathers_ && !answers_.empty() && sent_ == 0 && sent.size() < kMostGathered &&
         message.size() < kGatheredBytes && ToShortMessage(answers_.front(), &one)) {
    if (sent.empty()) {
      message.swap(one);
    } else {
      AppendBytes(v1::ExecuteResponse::kGatheredFieldNumber, one, &message);
    }
    done();
  }
  if (!sent.empty()) {
    const grpc::Slice slice(message);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    return sent;
  }
  bool last;
  outgoing_ = ToMessage(answers_.front(), &sent_, &last);
  if (last) done();
  return sent;
}

}  // namespace telegrad
