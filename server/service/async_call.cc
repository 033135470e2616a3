// The first reply finishes the call; any further one, from whatever thread, finds that the call
// is over and does nothing.
#include "server/service/async_call.h"

#include <utility>

#include "engine/base/status.h"
#include "server/service/convert.h"

namespace telegrad {

void AsyncCall::Reply::operator()(const absl::Status& status, grpc::ByteBuffer response) const {
  AsyncCall* call = nullptr;
  {
    const MutexLock lock(shared_->mutex);
    call = std::exchange(shared_->call, nullptr);
  }
  if (call == nullptr) return;
  // The call is there until it was finished, and nobody else finishes it any more.
  if (!status.ok()) return call->Finish(ToGrpc(status));
  call->message_.Swap(&response);
  call->StartWriteAndFinish(&call->message_, {}, grpc::Status::OK);
}

void AsyncCall::OnReceived(bool ok) {
  const Reply reply = reply_;  // `this` may go with the answer
  if (!ok) return reply(InvalidArgument("a call without a request"));
  if (const size_t bytes = message_.Length(); bytes > most_bytes_) {
    return reply(
        ResourceExhausted("a request of ", bytes, " bytes; this method takes ", most_bytes_));
  }
  grpc::ByteBuffer request;
  request.Swap(&message_);
  const Handler handler = std::move(handler_);
  handler(request, reply);
}

void AsyncCall::OnGone() {
  const Reply reply = reply_;
  reply.cancellation()->Cancel();
  reply(absl::CancelledError("the caller has disconnected"));
}

}  // namespace telegrad
