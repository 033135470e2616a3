// A unary method that is answered later, from any thread: one message in, one message out. If
// the caller disconnects before, the cancellation of the call is set.
#pragma once

#include <functional>
#include <memory>

#include "devices/api/cancellation.h"
#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/service/router.h"

namespace telegrad {

class AsyncCall final : public RawStream {
 public:
  // Answers the call, once; later answers, or one to a call that has ended, are of no effect.
  class Reply {
   public:
    void operator()(const absl::Status& status, grpc::ByteBuffer response = {}) const;
    const std::shared_ptr<Cancellation>& cancellation() const { return shared_->cancellation; }

   private:
    friend class AsyncCall;
    struct Shared {
      explicit Shared(AsyncCall* of) : call(of) {}
      Mutex mutex;
      AsyncCall* call TG_GUARDED_BY(mutex);  // null: it is answered
      std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();
    };
    explicit Reply(AsyncCall* call) : shared_(std::make_shared<Shared>(call)) {}
    std::shared_ptr<Shared> shared_;
  };
  using Handler = std::function<void(const grpc::ByteBuffer& request, Reply reply)>;

  // `most_bytes`: of the request.
  AsyncCall(size_t most_bytes, Handler handler)
      : most_bytes_(most_bytes), handler_(std::move(handler)), reply_(this) {
    StartRead(&message_);
  }

  void OnReceived(bool ok) override;
  void OnGone() override;
  void End(absl::Status why) override { reply_(why); }
  void OnOver() override { delete this; }

 private:
  const size_t most_bytes_;
  Handler handler_;
  const Reply reply_;
  grpc::ByteBuffer message_;
};

}  // namespace telegrad
