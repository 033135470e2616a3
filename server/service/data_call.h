// One Transfer stream over gRPC. It reads the next message when the last one is processed, and
// writes one at a time.
#pragma once

#include <memory>

#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/data/transfer_stream.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class DataCall final : public RawStream,
                       public TransferSink,
                       public std::enable_shared_from_this<DataCall> {
 public:
  // Owns itself until gRPC is done with it.
  static std::shared_ptr<DataCall> Create(SessionRegistry& registry, Metrics* metrics,
                                          Caller caller);
  // Begins to read; or ends with what is not OK.
  void Start(OpenCalls<DataCall>::CallSlot slot, const absl::Status& refused);

  void OnReceived(bool ok) override;
  void OnSent(bool ok) override;
  void OnGone() override;
  void OnOver() override;
  void End(absl::Status status) override;

  void OnGranted(uint64_t bytes) override;
  void OnSessionEnded() override;

 private:
  DataCall(SessionRegistry& registry, Metrics* metrics, Caller caller)
      : registry_(registry), caller_(std::move(caller)), stream_(metrics) {}

  absl::Status Accept();  // the message in incoming_
  // Starts whatever can be started: the next read, write or fetch, the end.
  void Pump();
  bool NextMessage();

  SessionRegistry& registry_;
  const Caller caller_;
  std::shared_ptr<DataCall> self_;      // until OnOver
  OpenCalls<DataCall>::CallSlot slot_;  // none if it is refused
  TransferStream stream_;

  // Of the reader, which is one at a time.
  grpc::ByteBuffer incoming_;
  v1::TransferRequest request_;

  Mutex mutex_;
  grpc::ByteBuffer outgoing_;  // of who set writing_
  int starting_ TG_GUARDED_BY(mutex_) = 0;
  bool reading_ TG_GUARDED_BY(mutex_) = false;
  bool writing_ TG_GUARDED_BY(mutex_) = false;
  bool input_ended_ TG_GUARDED_BY(mutex_) = false;
  bool ended_ TG_GUARDED_BY(mutex_) = false;   // nothing but the end is to be sent
  bool closed_ TG_GUARDED_BY(mutex_) = false;  // and the session has its place back
  bool finished_ TG_GUARDED_BY(mutex_) = false;
  absl::Status end_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
