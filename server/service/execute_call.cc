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
#include "server/service/convert.h"

namespace telegrad {
namespace {

// Answers that may wait for a client that does not read them.
constexpr size_t kMaxAnswers = 1024;

// The payload of a received message, in the slices in which the transport delivered it. A short
// slice holds its bytes inside itself, so the slices stay where they are: the vector is moved, its
// elements are not.
class SlicesPayload final : public Payload {
 public:
  SlicesPayload(std::vector<grpc::Slice> slices, Envelope envelope)
      : slices_(std::move(slices)), envelope_(std::move(envelope)) {}
  int64_t size() const override { return static_cast<int64_t>(envelope_.payload_bytes); }
  void CopyTo(void* to) const override {
    auto* out = static_cast<uint8_t*>(to);
    for (const Piece& piece : envelope_.payload) {
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }

 private:
  std::vector<grpc::Slice> slices_;
  Envelope envelope_;
};

}  // namespace

std::shared_ptr<ExecuteCall> ExecuteCall::Create(const Environment& env,
                                                 std::shared_ptr<Tenant> tenant, uint64_t id,
                                                 std::string peer) {
  std::shared_ptr<ExecuteCall> call(new ExecuteCall(env, id, std::move(peer)));
  call->self_ = call;
  call->session_ = std::make_shared<Session>(env, std::move(tenant), id, call);
  return call;
}

void ExecuteCall::Start(bool draining) {
  Log(LogLevel::kInfo, "session_opened", {{"session", id_}, {"peer", peer_}});
  if (draining) {
    Drain();
  } else if (env_.metrics->count(Metric::kSessions) > env_.limits.sessions) {
    Abort(ResourceExhausted("sessions is limited to ", env_.limits.sessions));
  } else {
    Pump();
  }
}

void ExecuteCall::Drain() {
  {
    std::lock_guard lock(mutex_);
    input_ended_ = true;
    if (end_.ok()) end_ = absl::UnavailableError("the server is shutting down");
  }
  Pump();
}

void ExecuteCall::OnReadDone(bool ok) {
  bool take;
  {
    std::lock_guard lock(mutex_);
    if (!ok) input_ended_ = true;
    take = accepting_ = !input_ended_ && !finished_ && !aborted_;
  }
  // reading_ stays set meanwhile, so that nobody else starts a read into incoming_.
  absl::Status status = take ? Accept() : absl::OkStatus();
  {
    std::lock_guard lock(mutex_);
    reading_ = accepting_ = false;
  }
  if (status.ok()) {
    Pump();
  } else {
    Abort(std::move(status));
  }
}

absl::Status ExecuteCall::Accept() {
  ReceivedMessage message(incoming_);
  incoming_.Clear();
  Envelope envelope;
  TG_RETURN_IF_ERROR(SplitEnvelope(message.pieces, kPayloadField, &envelope));
  if (!request_.ParseFromString(envelope.head)) {
    return InvalidArgument("malformed message: not an ExecuteRequest");
  }
  if (request_.op_id() <= last_op_) {
    return InvalidArgument("operation ", request_.op_id(), " follows ", last_op_,
                           "; ids are strictly increasing");
  }
  last_op_ = request_.op_id();
  if (!opened_) {
    if (!request_.has_open()) return FailedPrecondition("the first operation of a stream is open");
    return Open(request_.open());
  }
  std::unique_ptr<Payload> payload;
  if (request_.has_write() || request_.has_put() || request_.has_import()) {
    payload = std::make_unique<SlicesPayload>(std::move(message.slices), std::move(envelope));
  } else if (envelope.payload_bytes > 0) {
    return InvalidArgument("operation ", last_op_, " takes no data");
  }
  TG_ASSIGN_OR_RETURN(Operation operation, ToOperation(request_, std::move(payload)));
  session_->Submit(std::move(operation));
  return absl::OkStatus();
}

absl::Status ExecuteCall::Open(const v1::Open& open) {
  if (open.protocol() < kProtocolMin || open.protocol() > kProtocolMax) {
    return FailedPrecondition("protocol ", open.protocol(), "; this server speaks ", kProtocolMin,
                              " to ", kProtocolMax);
  }
  opened_ = true;
  Log(LogLevel::kDebug, "session_client", {{"session", id_}, {"client", open.client()}});
  OnAnswer({.id = last_op_, .status = {}, .result = OpenResult{id_}});
  return absl::OkStatus();
}

void ExecuteCall::OnWriteDone(bool ok) {
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
    Abort(absl::CancelledError("the client is gone"));
  }
}

void ExecuteCall::OnCancel() { Abort(absl::CancelledError("the client is gone")); }

void ExecuteCall::OnDone() {
  session_->Close();
  Log(LogLevel::kInfo, "session_closed",
      {{"session", id_}, {"peer", peer_}, {"status", end_.ToString()}});
  self_.reset();
}

void ExecuteCall::OnAnswer(Answer answer) {
  std::lock_guard lock(mutex_);
  if (!aborted_) answers_.push_back(std::move(answer));
}

void ExecuteCall::OnProgress() { Pump(); }

// Ends the stream now: what the session has is dropped.
void ExecuteCall::Abort(absl::Status status) {
  std::deque<Answer> dropped;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_) end_ = std::move(status);
    aborted_ = true;
    dropped.swap(answers_);
  }
  session_->Close();
  Pump();
}

void ExecuteCall::Pump() {
  const std::shared_ptr<ExecuteCall> keep = shared_from_this();
  std::unique_lock lock(mutex_);
  while (!finished_) {
    // No operation follows once the input has ended, so that an idle session stays idle.
    const bool ended = input_ended_ && !accepting_;
    lock.unlock();
    const bool idle = ended && session_->Idle();
    const bool congested = session_->Congested();
    lock.lock();
    if (finished_) return;

    const bool write = !writing_ && !aborted_ && !answers_.empty();
    const bool read =
        !reading_ && !input_ended_ && !aborted_ && !congested && answers_.size() < kMaxAnswers;
    const bool finish =
        !write && !writing_ && starting_ == 0 && (aborted_ || (idle && answers_.empty()));
    if (!write && !read && !finish) return;
    Answer sent_in_full;  // what it holds is let go without the lock
    if (write) {
      writing_ = true;
      sent_in_full = NextMessage();
    }
    if (read) reading_ = true;
    if (finish) finished_ = true;
    ++starting_;
    const absl::Status end = end_;
    lock.unlock();
    if (write) StartWrite(&outgoing_);
    if (read) StartRead(&incoming_);
    if (finish) return Finish(ToGrpc(end));
    sent_in_full = {};
    lock.lock();
    --starting_;
  }
}

// Puts the next message into outgoing_; returns the answer once nothing of it is left.
Answer ExecuteCall::NextMessage() {
  bool last;
  outgoing_ = ToMessage(answers_.front(), &sent_, &last);
  if (!last) return {};
  Answer answer = std::move(answers_.front());
  answers_.pop_front();
  sent_ = 0;
  return answer;
}

}  // namespace telegrad
