// As in execute_call.cc, flags under the mutex hold the state, Pump decides the next step, and gRPC
// and the session are called without the mutex.
#include "server/service/data_call.h"

#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "engine/wire/envelope.h"
#include "proto/transport.h"
#include "server/service/convert.h"

namespace telegrad {
namespace {

// In the pieces in which gRPC delivered it.
class WireData final : public MessageData {
 public:
  explicit WireData(const Envelope& envelope) : envelope_(envelope) {}
  uint64_t bytes() const override { return envelope_.payload_bytes; }
  absl::StatusOr<uint32_t> CopyTo(std::byte* to, Checksum kind) override {
    uint32_t sum = 0;
    for (const ByteSpan& piece : envelope_.payload) {
      sum = CopyWithChecksum(kind, to, piece.data(), piece.size(), sum);
      to += piece.size();
    }
    return sum;
  }
  absl::StatusOr<std::span<const std::span<const uint8_t>>> Pieces() override {
    return envelope_.payload;
  }

 private:
  const Envelope& envelope_;
};

}  // namespace

std::shared_ptr<DataCall> DataCall::Create(SessionRegistry& registry, Metrics* metrics,
                                           Caller caller) {
  std::shared_ptr<DataCall> call(new DataCall(registry, metrics, std::move(caller)));
  call->self_ = call;
  return call;
}

void DataCall::Start(OpenCalls<DataCall>::CallSlot slot, const absl::Status& refused) {
  slot_ = std::move(slot);
  if (refused.ok()) {
    Pump();
  } else {
    End(refused);
  }
}

void DataCall::OnReceived(bool ok) {
  bool take;
  {
    const MutexLock lock(mutex_);
    if (!ok) input_ended_ = true;
    take = ok && !ended_;
  }
  // reading_ stays set meanwhile, so that nobody else starts a read into incoming_.
  const absl::Status status = take ? Accept() : absl::OkStatus();
  {
    const MutexLock lock(mutex_);
    reading_ = false;
  }
  if (status.ok()) {
    Pump();
  } else {
    End(status);
  }
}

absl::Status DataCall::Accept() {
  ReceivedMessage message(incoming_);
  incoming_.Clear();
  Envelope envelope;
  TG_RETURN_IF_ERROR(SplitRequest(message, kMaxDataHeadBytes, "it is fixed", &envelope));
  if (!request_.ParseFromString(envelope.head)) {
    return InvalidArgument("malformed message: not a TransferRequest");
  }
  WireData data(envelope);
  if (stream_.attached()) return stream_.Accept(request_, data);
  if (!request_.has_attach()) {
    return FailedPrecondition("the first message of a stream must be attach");
  }
  const v1::Attach& attach = request_.attach();
  TG_ASSIGN_OR_RETURN(auto session,
                      registry_.Find(attach.token(), attach.epoch(), *caller_.tenant));
  return stream_.Attach(std::move(session), shared_from_this(), attach);
}

void DataCall::OnSent(bool ok) {
  grpc::ByteBuffer sent;  // lets go of the memory that it was sent from
  {
    const MutexLock lock(mutex_);
    sent.Swap(&outgoing_);
    writing_ = false;
  }
  sent.Clear();
  if (ok) {
    Pump();
  } else {
    End(absl::CancelledError("the client has disconnected"));
  }
}

void DataCall::OnGone() { End(absl::CancelledError("the client has disconnected")); }

void DataCall::OnOver() { self_.reset(); }

void DataCall::OnGranted(uint64_t bytes) {
  if (stream_.OnGranted(bytes)) Pump();
}

void DataCall::OnSessionEnded() { End(absl::AbortedError("the session has ended")); }

void DataCall::End(absl::Status status) {
  {
    const MutexLock lock(mutex_);
    if (!ended_) end_ = std::move(status);
    ended_ = true;
  }
  stream_.Close();
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  Pump();
}

void DataCall::Pump() {
  const std::shared_ptr<DataCall> keep = shared_from_this();
  ReleasableLock lock(mutex_);
  while (!finished_) {
    const bool write = !writing_ && !ended_ && NextMessage();
    const bool read = !reading_ && !input_ended_ && !ended_ && stream_.wants_input();
    const auto fetch = ended_ ? nullptr : stream_.BeginFetch();
    const bool idle = input_ended_ && !reading_ && stream_.idle();
    // Whoever sees the end may take the stream's place in the session.
    const bool finish = !write && !writing_ && starting_ == 0 && (ended_ ? closed_ : idle);
    if (!write && !read && fetch == nullptr && !finish) return;
    if (write) writing_ = true;
    if (read) reading_ = true;
    if (finish) finished_ = true;
    ++starting_;
    const absl::Status end = end_;
    lock.unlock();
    if (write) StartWrite(&outgoing_);
    if (read) StartRead(&incoming_);
    if (fetch != nullptr) stream_.Fetch(fetch, [keep] { keep->Pump(); });
    if (finish) return Finish(ToGrpc(end));
    lock.lock();
    --starting_;
  }
}

// Puts the next message into outgoing_, if there is one.
bool DataCall::NextMessage() {
  std::optional<TransferMessage> message = stream_.Next();
  if (!message) return false;
  outgoing_ = ToMessage(message->head.SerializeAsString(), message->data.data, message->bytes,
                        std::move(message->data.owner));
  return true;
}

}  // namespace telegrad
