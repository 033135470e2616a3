// The transport of an Execute stream on a bulk socket: the messages of the stream without HTTP/2.
// One thread receives; answers are sent by whoever has them. See "Operations on bulk sockets" in
// docs/wire.md.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "engine/net/message_socket.h"
#include "engine/net/stream_socket.h"
#include "grpcpp/grpcpp.h"
#include "server/service/convert.h"
#include "server/service/raw_stream.h"

namespace telegrad {

class OperationSocket final : public StreamTransport {
 public:
  // `memory` is charged with messages that have not come whole.
  OperationSocket(std::shared_ptr<StreamSocket> socket, std::shared_ptr<Account> memory);
  // RESOURCE_EXHAUSTED where there is no thread for it; then nothing is served.
  absl::Status Start() { return socket_.Start(); }
  // Serves the stream until it is over, which the calling thread receives for. Returns why the
  // connection broke, or OK.
  absl::Status Serve(RawStream* stream);

  void Read(grpc::ByteBuffer* message) override;
  void Write(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) override;
  bool WriteNow(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) override;
  void WriteAndFinish(const grpc::ByteBuffer& message, const grpc::WriteOptions& options,
                      const grpc::Status& status) override;
  void Finish(const grpc::Status& status) override;

 private:
  absl::StatusOr<bool> Receive(grpc::ByteBuffer* into);  // false: none follows
  grpc::ByteBuffer* AwaitRead();                         // null: the stream has finished, and
                                                         // nobody tells it anything any more
  bool finished();
  void OnSent(bool ok);

  RawStream* stream_ = nullptr;
  std::optional<ReceivedMessage> sending_;  // of the writer, until OnSent

  Mutex mutex_;
  ConditionVariable changed_;
  grpc::ByteBuffer* read_into_ TG_GUARDED_BY(mutex_) = nullptr;
  bool finished_ TG_GUARDED_BY(mutex_) = false;
  bool telling_ TG_GUARDED_BY(mutex_) = false;                     // the stream, how a write went
  std::optional<grpc::Status> finish_with_ TG_GUARDED_BY(mutex_);  // once the last message is sent

  MessageSocket socket_;  // last: its thread calls this
};

}  // namespace telegrad
