// A session without the client library: any ExecuteRequest may be sent and each answer is seen.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "telegrad/v1/compute.grpc.pb.h"

namespace telegrad {

class RawSession {
 public:
  // The call ends by itself after `limit`, so that a test does.
  explicit RawSession(const std::shared_ptr<grpc::Channel>& channel, v1::Open open = {},
                      std::chrono::seconds limit = std::chrono::seconds(60))
      : stub_(v1::Compute::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + limit);
    stream_ = stub_->Execute(&context_);
    v1::ExecuteRequest request;
    open.set_protocol(1);
    *request.mutable_open() = std::move(open);
    Send(std::move(request));
    opened_ = Read().open();
  }
  ~RawSession() {
    context_.TryCancel();
    (void)Finish();
  }

  // Sends it as the next operation; its number.
  uint64_t Send(v1::ExecuteRequest request) {
    request.set_op_id(++last_);
    return SendAs(std::move(request));
  }
  // With the id that it has.
  uint64_t SendAs(v1::ExecuteRequest request) {
    last_ = request.op_id();
    stream_->Write(request);
    return last_;
  }
  // The next answer; none once the stream has ended.
  v1::ExecuteResponse Read() {
    v1::ExecuteResponse response;
    over_ = over_ || !stream_->Read(&response);
    return response;
  }
  // How the operation went: what it was answered with, or if the stream ended instead, with what.
  absl::Status Ask(v1::ExecuteRequest request, v1::ExecuteResponse* answer = nullptr) {
    const uint64_t id = Send(std::move(request));
    v1::ExecuteRequest sync;
    sync.mutable_sync();
    const uint64_t last = Send(std::move(sync));
    absl::Status status;
    while (!over_) {
      const v1::ExecuteResponse response = Read();
      if (over_ || response.op_id() == last) break;
      if (response.op_id() != id) continue;
      status = absl::Status(static_cast<absl::StatusCode>(response.status().code()),
                            response.status().message());
      if (answer != nullptr) *answer = response;
    }
    return over_ ? Finish() : status;
  }
  // What the server answered to the opening.
  const v1::OpenResult& opened() const { return opened_; }
  bool over() const { return over_; }
  absl::Status Finish() {
    if (!finished_) {
      finished_ = true;
      over_ = true;
      v1::ExecuteResponse ignored;
      while (stream_->Read(&ignored)) {
      }
      const grpc::Status status = stream_->Finish();
      end_ =
          absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    }
    return end_;
  }

 private:
  v1::OpenResult opened_;
  const std::unique_ptr<v1::Compute::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteResponse>> stream_;
  uint64_t last_ = 0;
  bool over_ = false, finished_ = false;
  absl::Status end_;
};

inline v1::ExecuteRequest AllocRequest(uint64_t handle, uint64_t bytes) {
  v1::ExecuteRequest request;
  request.mutable_alloc()->set_handle(handle);
  request.mutable_alloc()->set_bytes(bytes);
  return request;
}
inline v1::ExecuteRequest WriteRequest(uint64_t handle, uint64_t offset, std::string data) {
  v1::ExecuteRequest request;
  request.mutable_write()->set_handle(handle);
  request.mutable_write()->set_offset(offset);
  request.set_data(std::move(data));
  return request;
}
inline v1::ExecuteRequest ReadRequest(uint64_t handle, uint64_t offset, uint64_t bytes) {
  v1::ExecuteRequest request;
  request.mutable_read()->set_handle(handle);
  request.mutable_read()->set_offset(offset);
  request.mutable_read()->set_bytes(bytes);
  return request;
}
inline v1::ExecuteRequest PutRequest(std::string graph) {
  v1::ExecuteRequest request;
  request.mutable_put();
  request.set_data(std::move(graph));
  return request;
}
inline v1::ExecuteRequest FreeRequest(uint64_t handle) {
  v1::ExecuteRequest request;
  request.mutable_free()->add_handles(handle);
  return request;
}
inline v1::ExecuteRequest RunRequest(std::string hash, std::initializer_list<uint64_t> handles) {
  v1::ExecuteRequest request;
  request.mutable_run()->set_hash(std::move(hash));
  for (const uint64_t handle : handles) request.mutable_run()->add_handles(handle);
  return request;
}

}  // namespace telegrad
