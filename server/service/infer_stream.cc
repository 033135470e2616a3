// A bounded list of requests in their order; each is started when there is room and answered
// when those before it are.
#include "server/service/infer_stream.h"

#include <utility>

#include "engine/base/status.h"
#include "server/service/convert.h"
#include "server/service/infer_messages.h"
#include "server/service/inference_service.h"

namespace telegrad {

RawStream* InferStream::Start(ModelServer* models, const absl::Status& why, Caller caller,
                              const grpc::ServerContextBase& context) {
  const auto [begin, end] = context.client_metadata().equal_range("triton_grpc_error");
  bool errors_end = false;
  for (auto it = begin; it != end; ++it) errors_end |= it->second == "true";
  const auto stream = std::make_shared<InferStream>(models, std::move(caller), errors_end);
  stream->self_ = stream;
  stream->trace_ = CallerTrace(context);
  if (models == nullptr) {
    {
      const MutexLock lock(stream->mutex_);
      stream->reading_ = false;
    }
    stream->End(why);
  } else {
    stream->StartRead(&stream->incoming_);
  }
  return stream.get();
}

void InferStream::OnReceived(bool ok) {
  const auto keep = shared_from_this();
  if (!ok) {
    {
      const MutexLock lock(mutex_);
      reading_ = false;
      input_ended_ = true;
    }
    return Pump();
  }
  grpc::ByteBuffer bytes;
  bytes.Swap(&incoming_);
  const auto slot = std::make_shared<Slot>();
  {
    const MutexLock lock(mutex_);
    if (end_) {
      reading_ = false;
      return;
    }
    slots_.push_back(slot);
  }
  auto received = ToInferRequest(bytes, *caller_.tenant);
  bytes.Clear();
  if (!received.ok()) {
    Answer(slot, received.status(), "", "");
  } else {
    received->request.cancellation = cancellation_;
    received->request.caller_trace = trace_;
    // An error repeats the name, which may be any text.
    const std::string model = Clip(received->request.model, 256);
    models_->Infer(
        caller_.tenant, std::move(received->request),
        [keep, slot, model, id = std::move(received->id)](absl::StatusOr<InferResult> result) {
          keep->Answer(slot, std::move(result), model, id);
        });
  }
  {
    const MutexLock lock(mutex_);
    reading_ = false;
  }
  Pump();
}

void InferStream::Answer(const std::shared_ptr<Slot>& slot, absl::StatusOr<InferResult> result,
                         const std::string& model, const std::string& id) {
  if (!result.ok() && errors_end_) return End(result.status());
  grpc::ByteBuffer message =
      result.ok() ? ToStreamMessage(*result, id) : ToStreamMessage(result.status(), model, id);
  {
    const MutexLock lock(mutex_);
    slot->message.Swap(&message);
    slot->done = true;
  }
  Pump();
}

void InferStream::OnSent(bool ok) {
  {
    const MutexLock lock(mutex_);
    writing_ = false;
    outgoing_.Clear();
    if (!ok && !end_) end_ = absl::CancelledError("the caller has disconnected");
  }
  Pump();
}

void InferStream::OnDrain() {
  {
    const MutexLock lock(mutex_);
    input_ended_ = true;  // what was taken is answered
  }
  Pump();
}

void InferStream::End(absl::Status why) {
  cancellation_->Cancel();
  {
    const MutexLock lock(mutex_);
    if (!end_) end_ = std::move(why);
  }
  Pump();
}

// Starts what can be started. What is decided under the mutex is done without it, so that no thread
// of the transport waits for it; nobody finishes while somebody starts something.
void InferStream::Pump() {
  const auto keep = shared_from_this();
  ReleasableLock lock(mutex_);
  while (!finished_) {
    const bool write = !writing_ && !end_ && !slots_.empty() && slots_.front()->done;
    const bool read = !reading_ && !input_ended_ && !end_ && slots_.size() < kMostUnderWay;
    const bool finish = !write && !writing_ && starting_ == 0 &&
                        (end_.has_value() || (input_ended_ && slots_.empty()));
    if (!write && !read && !finish) return;
    if (write) {
      outgoing_.Swap(&slots_.front()->message);
      slots_.pop_front();
      writing_ = true;
    }
    if (read) reading_ = true;
    if (finish) finished_ = true;
    ++starting_;
    const absl::Status end = end_.value_or(absl::OkStatus());
    lock.unlock();
    if (write) StartWrite(&outgoing_);
    if (read) StartRead(&incoming_);
    if (finish) return Finish(ToGrpc(end));
    lock.lock();
    --starting_;
  }
}

}  // namespace telegrad
