// When a client of a resumable session acknowledges answers, which its server keeps until then.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/mutex.h"
#include "engine/base/strings.h"
#include "gtest/gtest.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {
namespace {

class KeepsAlive final : public v1::Session::Service {
  grpc::Status Hello(grpc::ServerContext*, const v1::HelloRequest*,
                     v1::HelloResponse* response) override {
    response->set_protocol(1);
    response->set_graph_form(2);
    response->set_chunk_bytes(1 << 20);
    return grpc::Status::OK;
  }
  grpc::Status KeepAlive(grpc::ServerContext*, const v1::KeepAliveRequest*,
                         v1::KeepAliveResponse* response) override {
    response->set_lease_ms(lease_ms);
    return grpc::Status::OK;
  }

 public:
  uint32_t lease_ms = 0;
};

// Answers reads when it has as many as it waits for, and notes what is acknowledged by messages
// without an operation.
class Reads final : public v1::Compute::Service {
 public:
  uint32_t lease_ms = 0;
  size_t awaited = 1;

  // False: for a minute, nothing up to `id` was.
  bool AwaitAcknowledged(uint64_t id) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    ReleasableLock lock(mutex_);
    while (acknowledged_ < id) {
      if (changed_.wait_until(lock, until) == std::cv_status::timeout) return false;
    }
    return true;
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::ExecuteResponse, v1::ExecuteRequest>;
  grpc::Status Execute(grpc::ServerContext*, Stream* stream) override {
    std::vector<v1::ExecuteRequest> reads;
    for (v1::ExecuteRequest request; stream->Read(&request);) {
      if (request.has_open()) {
        v1::ExecuteResponse response;
        response.set_op_id(request.op_id());
        v1::OpenResult& open = *response.mutable_open();
        open.set_token("0123456789abcdef");
        open.set_lease_ms(lease_ms);
        open.set_grace_ms(500);
        stream->Write(response);
      } else if (request.op_case() == v1::ExecuteRequest::OP_NOT_SET) {
        const MutexLock lock(mutex_);
        acknowledged_ = request.acknowledged();
        changed_.notify_all();
      }
      Take(request, &reads);
      for (int i = 0; i < request.gathered_size(); ++i) {
        v1::ExecuteRequest one;
        one.ParseFromString(request.gathered(i));
        Take(one, &reads);
      }
      if (reads.size() < awaited) continue;
      for (const v1::ExecuteRequest& read : reads) {
        v1::ExecuteResponse response;
        response.set_op_id(read.op_id());
        response.mutable_read()->set_last(true);
        response.set_data(std::string(read.read().bytes(), 'x'));
        stream->Write(response);
      }
      reads.clear();
    }
    return grpc::Status::OK;
  }
  static void Take(const v1::ExecuteRequest& request, std::vector<v1::ExecuteRequest>* reads) {
    if (request.has_read()) reads->push_back(request);
  }

  Mutex mutex_;
  ConditionVariable changed_;
  uint64_t acknowledged_ TG_GUARDED_BY(mutex_) = 0;
};

class Acknowledgements : public ::testing::Test {
 protected:
  void Open(uint32_t lease_ms) {
    sessions_.lease_ms = reads_.lease_ms = lease_ms;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&sessions_);
    builder.RegisterService(&reads_);
    server_ = builder.BuildAndStart();
    const auto connection = Connection::Connect(StrCat("127.0.0.1:", port));
    ASSERT_TRUE(connection.ok()) << connection.status();
    connection_ = *connection;
    auto session = connection_->OpenSession({.resumable = true});
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  KeepsAlive sessions_;
  Reads reads_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<RemoteSession> session_;
};

TEST_F(Acknowledgements, OfAnIdleSessionComeWithItsLease) {
  Open(/*lease_ms=*/300);
  std::vector<std::byte> bytes(8);
  ASSERT_EQ(session_->Read(1, 0, bytes).Get().status(), absl::OkStatus());
  EXPECT_TRUE(reads_.AwaitAcknowledged(2));  // 1 is that of Open
}

TEST_F(Acknowledgements, OfManyBytesDoNotWaitForTheNextOperation) {
  constexpr size_t kReads = 200, kBytes = 32 << 10;
  reads_.awaited = kReads;
  Open(/*lease_ms=*/3'600'000);
  std::vector<std::byte> bytes(kReads * kBytes);
  std::vector<Future<Done>> ends;
  for (size_t i = 0; i < kReads; ++i) {
    ends.push_back(session_->Read(1, 0, std::span(bytes).subspan(i * kBytes, kBytes)));
  }
  for (const Future<Done>& end : ends) ASSERT_EQ(end.Get().status(), absl::OkStatus());
  EXPECT_TRUE(reads_.AwaitAcknowledged(1 + (4 << 20) / kBytes));
}

}  // namespace
}  // namespace telegrad
