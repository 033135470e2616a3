// The transport's side of one call, without a transport: gives a handler its messages one by one,
// takes what it writes, and ends the call as a client would.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "server/service/raw_stream.h"

namespace telegrad::fuzz {

class ServicePeer final : public StreamTransport {
 public:
  // After its last message the client says that no more follow; or it goes, if `cancels`, as soon
  // as the handler reads none of them and writes nothing.
  ServicePeer(std::vector<grpc::ByteBuffer> messages, bool cancels)
      : messages_(messages.begin(), messages.end()), cancels_(cancels) {}

  // Runs the call to its end: until the handler has finished and is gone. What it ended with.
  grpc::Status Run(RawStream* handler);

  size_t written() const { return written_; }  // messages

 private:
  void Read(grpc::ByteBuffer* message) override;
  void Write(const grpc::ByteBuffer& message, const grpc::WriteOptions& options) override;
  void WriteAndFinish(const grpc::ByteBuffer& message, const grpc::WriteOptions& options,
                      const grpc::Status& status) override;
  void Finish(const grpc::Status& status) override;

  void DeliverRead(std::unique_lock<std::mutex>& lock);

  std::deque<grpc::ByteBuffer> messages_;
  const bool cancels_;
  RawStream* handler_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ByteBuffer* reading_ = nullptr;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
  grpc::Status status_;
  size_t written_ = 0;
};

}  // namespace telegrad::fuzz
