// Copies between two servers on behalf of a front, where one of the two refuses, sends wrong
// answers or falls silent: the copy fails with an error that names that server, and the other
// server's transfer ends.
#include "devices/remote/remote_peers.h"
#include "tests/devices/fixture.h"
#include "tests/remote/fake_server.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class HostilePeers : public ::testing::Test {
 protected:
  HostilePeers() {
    for (FakeServer* server : {&from_, &to_}) {
      server->session.hello = [this](v1::HelloResponse* response) {
        response->set_copies(true);
        response->set_bulk_address("127.0.0.1:9");
        response->set_peer_key(std::string(32, 'k'));
        if (allows_) response->add_peers("127.0.0.1:*");
      };
    }
    to_.data.admit = [](const v1::AdmitBulkRequest& request, v1::AdmitBulkResponse* response) {
      EXPECT_EQ(request.peer_key(), std::string(32, 'k'));
      EXPECT_EQ(request.bytes(), 4u);
      response->set_identity(std::string(16, 'i'));
      response->set_secret(std::string(32, 's'));
      response->set_transfer(uint64_t{1} << 63);
      return grpc::Status::OK;
    };
    from_.compute.answer = [this](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
      if (request.has_sync()) return FakeServer::Answer(request, stream);
      if (request.has_cancel()) cancelled_[0] = request.cancel().first();
      if (!request.has_send()) return;
      sent_ = request.op_id();
      EXPECT_EQ(request.send().address(), "127.0.0.1:9");
      EXPECT_EQ(request.send().secret(), std::string(32, 's'));
      if (send_) send_(request, stream);
    };
    to_.compute.answer = [this](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
      if (request.has_sync()) return FakeServer::Answer(request, stream);
      if (request.has_cancel()) {
        cancelled_[1] = request.cancel().first();
        if (on_cancel_) on_cancel_(request, stream);
      }
      if (!request.has_receive()) return;
      received_ = request.op_id();
      if (receive_) receive_(request, stream);
    };
  }
  ~HostilePeers() override {
    devices_.clear();
    from_.Shutdown();
    to_.Shutdown();
  }

  // How a copy from the one to the other ends.
  absl::Status Copied(const std::shared_ptr<Cancellation>& cancellation = nullptr,
                      const std::function<void()>& then = nullptr) {
    const auto peers = std::make_shared<RemotePeers>();
    for (FakeServer* server : {&from_, &to_}) {
      RemoteOptions options = server->Options(server == &from_ ? "from" : "to");
      options.peers = peers;
      options.grace = grace_;
      devices_.push_back(std::move((*OpenRemote(options, nullptr))[0]));
    }
    Device &from = *devices_[0], &to = *devices_[1];
    if (NeedsHost(to, from)) return absl::UnimplementedError("through the host");
    const BufferView a = Whole(*from.Alloc(4)), b = Whole(*to.Alloc(4));
    Device& device = CopyDevice(to, from);
    const auto commands =
        *device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = 4})});
    const auto point =
        device.queue(QueueKind::kCopy).Submit(commands, {b, a}, {}, nullptr, cancellation);
    if (!point.ok()) return point.status();
    if (then) then();
    return point->Wait(absl::Seconds(60));
  }
  using Does = std::function<void(const v1::ExecuteRequest&, FakeCompute::Stream*)>;
  static Does Answering(Code code, const std::string& message) {
    return [=](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
      FakeServer::Answer(request, stream, [&](v1::ExecuteResponse& response) {
        response.mutable_status()->set_code(static_cast<uint32_t>(code));
        response.mutable_status()->set_message(message);
      });
    };
  }

  bool allows_ = true;
  absl::Duration grace_ = absl::Seconds(30);
  FakeServer from_, to_;
  Does send_, receive_, on_cancel_;
  std::atomic<uint64_t> sent_{0}, received_{0}, cancelled_[2] = {0, 0};
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST_F(HostilePeers, WhenBothAnswerItIsDone) {
  send_ = receive_ = Answering(Code::kOk, "");
  EXPECT_EQ(Copied(), absl::OkStatus());
  EXPECT_EQ(cancelled_[0] + cancelled_[1], 0u);
}

// A server that did not hear of the end may report a failure, though all bytes are there.
TEST_F(HostilePeers, TheReceiverKnowsWhetherTheBytesAreThere) {
  send_ = Answering(Code::kUnavailable, "cannot be reached");
  on_cancel_ = [this](const v1::ExecuteRequest&, FakeCompute::Stream* stream) {
    v1::ExecuteRequest receive;
    receive.set_op_id(received_);
    FakeServer::Answer(receive, stream);
  };
  EXPECT_EQ(Copied(), absl::OkStatus());
}

TEST_F(HostilePeers, ThoseThatAllowNothingAreNotTold) {
  allows_ = false;
  EXPECT_EQ(Copied().code(), Code::kUnimplemented);
  EXPECT_EQ(sent_, 0u);
}

TEST_F(HostilePeers, ATicketThatIsRefusedOrIsNone) {
  to_.data.admit = [](const v1::AdmitBulkRequest&, v1::AdmitBulkResponse*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many transfers");
  };
  absl::Status status = Copied();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(), "to: too many transfers");
  devices_.clear();
  to_.data.admit = [](const v1::AdmitBulkRequest&, v1::AdmitBulkResponse* response) {
    response->set_identity("short");
    return grpc::Status::OK;
  };
  status = Copied();
  EXPECT_EQ(status.code(), Code::kInternal) << status;
  EXPECT_EQ(sent_ + received_, 0u) << "neither was told";
}

TEST_F(HostilePeers, ASenderThatRefusesIsNamedAndTheReceiverIsCancelled) {
  send_ = Answering(Code::kPermissionDenied, "this server may not send");
  on_cancel_ = [this](const v1::ExecuteRequest&, FakeCompute::Stream* stream) {
    v1::ExecuteRequest receive;
    receive.set_op_id(received_);
    Answering(Code::kCancelled, "cancelled")(receive, stream);
  };
  const absl::Status status = Copied();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_EQ(status.message(), "from: this server may not send");
  EXPECT_EQ(cancelled_[1], received_);
}

// It is waited for no longer when it has had its time.
TEST_F(HostilePeers, AReceiverThatFailsAndASenderThatNeverEnds) {
  grace_ = absl::Milliseconds(100);
  receive_ = Answering(Code::kResourceExhausted, "no room");
  const absl::Status status = Copied();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_EQ(status.message(), "to: no room");
  EXPECT_EQ(cancelled_[0], sent_);
  EXPECT_TRUE(devices_[0]->Alloc(4).ok()) << "its session is kept";
}

TEST_F(HostilePeers, ACancelledCopyEndsThoughNeitherAnswers) {
  grace_ = absl::Milliseconds(100);
  const auto wish = std::make_shared<Cancellation>();
  const absl::Status status = Copied(wish, [&] {
    while (received_ == 0) std::this_thread::yield();
    wish->Cancel();
  });
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not ended a copy that was cancelled"));
  EXPECT_EQ(cancelled_[0], sent_);
  EXPECT_EQ(cancelled_[1], received_);
}

}  // namespace
}  // namespace telegrad
