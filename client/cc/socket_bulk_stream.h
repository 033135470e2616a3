// A stream of transfers on a bulk socket: two threads, one of which sends and one of which
// receives, each from or to the caller's memory.
#pragma once

#include <memory>
#include <thread>

#include "client/cc/bulk_socket.h"
#include "client/cc/bulk_stream.h"
#include "engine/net/frames.h"
#include "engine/net/stream_socket.h"
#include "grpcpp/grpcpp.h"
#include "telegrad/v1/data.grpc.pb.h"

namespace telegrad {

class SocketBulkStream final : public BulkStream {
 public:
  SocketBulkStream(BulkTransfers* owner, SessionTicket ticket);
  ~SocketBulkStream() override;

  void Kick() override { wake_.notify_one(); }
  void Cancel() override;
  void Drain() override;
  bool optional() const override { return true; }

 private:
  void Run();  // of the one that receives
  absl::StatusOr<std::shared_ptr<StreamSocket>> Open();
  absl::Status Receive(StreamSocket& socket);
  absl::Status TakeChunk(StreamSocket& socket, const v1::Chunk& chunk, uint32_t payload_bytes);
  void Write(StreamSocket& socket);
  void End(const absl::Status& status);

  const SessionTicket ticket_;
  BulkSocketOpener opener_;
  ConditionVariable wake_;  // there may be something to be sent
  std::thread reader_, writer_;

  bool ended_ TG_GUARDED_BY(owner_->mutex_) = false;
};

}  // namespace telegrad
