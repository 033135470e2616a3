// A stream of inference requests, answered in their order. Errors of requests are answers, too,
// unless the caller's metadata asks for them to end the stream (triton_grpc_error).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/service/router.h"
#include "server/serving/model_server.h"

namespace telegrad {

class InferStream final : public RawStream, public std::enable_shared_from_this<InferStream> {
 public:
  // `models`: null where there are none, as `why` says.
  static RawStream* Start(ModelServer* models, const absl::Status& why, Caller caller,
                          const grpc::ServerContextBase& context);

  InferStream(ModelServer* models, Caller caller, bool errors_end)
      : models_(models), caller_(std::move(caller)), errors_end_(errors_end) {}

  void OnReceived(bool ok) override;
  void OnSent(bool ok) override;
  void OnGone() override { End(absl::CancelledError("the caller has disconnected")); }
  void OnOver() override { self_.reset(); }
  void OnDrain() override;
  void End(absl::Status why) override;

 private:
  // A request that is not answered yet; the answers of those before it go first.
  struct Slot {
    bool done = false;
    grpc::ByteBuffer message;
  };
  // Requests of one stream that are under way; then it is not read further.
  static constexpr size_t kMostUnderWay = 256;

  void Answer(const std::shared_ptr<Slot>& slot, absl::StatusOr<InferResult> result,
              const std::string& model, const std::string& id);
  void Pump();

  ModelServer* const models_;
  const Caller caller_;
  const bool errors_end_;
  std::optional<TraceContext> trace_;  // that all requests belong to
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  std::shared_ptr<InferStream> self_;  // until OnOver
  grpc::ByteBuffer incoming_;          // the reader's

  grpc::ByteBuffer outgoing_;  // the writer's while writing_

  Mutex mutex_;
  std::deque<std::shared_ptr<Slot>> slots_ TG_GUARDED_BY(mutex_);
  bool reading_ TG_GUARDED_BY(mutex_) = true;
  bool writing_ TG_GUARDED_BY(mutex_) = false;
  int starting_ TG_GUARDED_BY(mutex_) = 0;  // threads that are about to read or write
  bool input_ended_ TG_GUARDED_BY(mutex_) = false;
  bool finished_ TG_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
