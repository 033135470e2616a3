// The C++ client against servers that stop in the middle or send malicious answers.
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "client/cc/execute_transport.h"
#include "engine/base/byte_codec.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/data.grpc.pb.h"
#include "telegrad/v1/session.grpc.pb.h"
#include "tests/fakes/cutting_proxy.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;

class Greets final : public v1::Session::Service {
  grpc::Status Hello(grpc::ServerContext*, const v1::HelloRequest*,
                     v1::HelloResponse* response) override {
    response->set_protocol(1);
    response->set_graph_form(2);
    response->set_chunk_bytes(1 << 20);
    response->set_bulk_address(bulk_address);
    return grpc::Status::OK;
  }

 public:
  std::string bulk_address;
};

// Reads no further than a session's first operation, as one that is congested.
class ReadsNoFurther final : public v1::Compute::Service {
  grpc::Status Execute(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ExecuteResponse, v1::ExecuteRequest>* stream) override {
    v1::ExecuteRequest request;
    stream->Read(&request);
    v1::ExecuteResponse response;
    response.set_op_id(request.op_id());
    response.mutable_open()->set_token("token");
    stream->Write(response);
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  }
};

// What was written inline is in the hands of gRPC, which has no room for it at the server.
TEST(HostileServer, ASessionEndsThoughNobodyReadsItsWrites) {
  Greets greets;
  ReadsNoFurther reads_no_further;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&greets);
  builder.RegisterService(&reads_no_further);
  const auto server = builder.BuildAndStart();
  ConnectOptions options;
  options.data_streams = 0;  // all of it travels inline
  const fakes::CuttingProxy proxy(StrCat("127.0.0.1:", port));
  const auto connection = Connection::Connect(proxy.address(), options);
  ASSERT_TRUE(connection.ok()) << connection.status();
  auto session = *(*connection)->OpenSession();
  const std::vector<std::byte> data(3 << 20);
  for (int i = 0; i < 40; ++i) session->Write(1, 0, data);
  const Future<Done> never = session->Sync();
  // Until gRPC has begun, and gets rid of no more.
  using Clock = std::chrono::steady_clock;
  int64_t passed = 0;
  for (auto since = Clock::now(); passed < 10'000 || Clock::now() - since < milliseconds(300);) {
    if (const int64_t now = proxy.bytes_up(); std::exchange(passed, now) != now) {
      since = Clock::now();
    }
    std::this_thread::yield();
  }
  session.reset();
  EXPECT_FALSE(never.Get().ok());
}

// Bytes that are not gRPC's go to nobody but the host at hand.
TEST(HostileServer, ClientsSpeakToNoOtherHostForIt) {
  Greets greets;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&greets);
  const auto server = builder.BuildAndStart();
  const std::pair<std::string, std::string> kRows[] = {{"10.0.0.5:6379", ""},
                                                       {"localhost.example:1", ""},
                                                       {"127.evil.com:1", ""},
                                                       {"127.0.0.1.evil.com:1", ""},
                                                       {"nonsense", ""},
                                                       {"", ""},
                                                       {":77", "127.0.0.1:77"},
                                                       {"127.0.0.1:77", "127.0.0.1:77"},
                                                       {"localhost:77", "localhost:77"}};
  for (const auto& [said, reached] : kRows) {
    greets.bulk_address = said;
    const auto connection = Connection::Connect(StrCat("127.0.0.1:", port));
    ASSERT_TRUE(connection.ok()) << connection.status();
    EXPECT_EQ((*connection)->server().bulk_address, reached) << said;
  }
}

// Says that it is attached, and says so once more.
class AttachesTwice final : public v1::Data::Service {
  grpc::Status Transfer(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::TransferResponse, v1::TransferRequest>* stream) override {
    v1::TransferRequest request;
    stream->Read(&request);
    for (const uint64_t credit : {1, 2}) {
      v1::TransferResponse response;
      response.mutable_attached()->set_credit(credit);
      response.mutable_attached()->set_chunk_bytes(credit);
      stream->Write(response);
    }
    while (stream->Read(&request)) {
    }
    left = true;
    return grpc::Status::OK;
  }

 public:
  std::atomic<bool> left = false;  // the client has
};

TEST(HostileServer, AStreamIsAttachedOnce) {
  Greets greets;
  ReadsNoFurther reads_no_further;
  AttachesTwice attaches_twice;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&greets);
  builder.RegisterService(&reads_no_further);
  builder.RegisterService(&attaches_twice);
  const auto server = builder.BuildAndStart();
  const auto connection = Connection::Connect(StrCat("127.0.0.1:", port));
  ASSERT_TRUE(connection.ok()) << connection.status();
  auto session = *(*connection)->OpenSession();
  const std::vector<std::byte> data(8 << 20);
  session->Write(1, 0, data);
  while (!attaches_twice.left) std::this_thread::yield();
  session.reset();
}

// Says what it was told of a connection.
class Told final : public ExecuteTransport::User {
 public:
  bool IsOver() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return over_; });
  }
  absl::Status end;

 private:
  void OnReadDone(ExecuteTransport& transport, bool ok) override {
    EXPECT_FALSE(ok);
    transport.Finish();
    transport.Release();
  }
  void OnWriteDone(bool ok) override { EXPECT_FALSE(ok); }
  void OnDone(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    end = status;
    over_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

// It ends the stream on a bulk socket, which it keeps, with much of a message on its way to it.
TEST(HostileServer, ASocketIsOverWithItsFarewellThoughNobodyReads) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  StreamSocket server(UniqueFd(fds[1]), std::chrono::hours(1));
  Told told;
  const auto transport = *ExecuteOverSocket::Create(
      &told, std::make_shared<StreamSocket>(UniqueFd(fds[0]), std::chrono::hours(1)));
  transport->Start();
  grpc::ByteBuffer into;
  transport->Read(&into);
  const grpc::Slice slice(std::string(8 << 20, 'm'));
  EXPECT_FALSE(transport->Write(grpc::ByteBuffer(&slice, 1), false)) << "more than there is room";
  v1::Ended ended;
  ended.set_code(static_cast<uint32_t>(absl::StatusCode::kAborted));
  ByteWriter out;
  out.Word(uint32_t{0});
  out.Word(static_cast<uint32_t>(ended.ByteSizeLong()));
  const std::string farewell = out.Take() + ended.SerializeAsString();
  ASSERT_TRUE(server.Send(std::as_bytes(std::span(farewell))).ok());
  EXPECT_TRUE(told.IsOver());
  EXPECT_EQ(told.end.code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace telegrad
