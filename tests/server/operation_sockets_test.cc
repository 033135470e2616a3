// Operations on bulk sockets, of a client of the test's own: a session that is resumed there, its
// end, and clients that break the rules.
#include <thread>

#include "engine/net/frames.h"
#include "engine/net/message_socket.h"
#include "engine/net/tcp.h"
#include "proto/transport.h"
#include "telegrad/v1/data.grpc.pb.h"
#include "telegrad/v1/session.grpc.pb.h"
#include "tests/server/bulk_token.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr std::chrono::milliseconds kStall{20'000};

class OperationSockets : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    Open();
  }
  void Open() {
    v1::Open open;
    open.set_resumable(true);
    call_ = std::make_unique<RawSession>(connection_->channel(), open);
    token_ = call_->opened().token();
    epoch_ = call_->opened().epoch();
  }
  PresharedKey Ticket() {
    v1::AdmitBulkRequest request;
    request.set_token(token_);
    request.set_epoch(epoch_);
    request.set_operations(true);
    v1::AdmitBulkResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::Data::NewStub(connection_->channel())->AdmitBulk(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.identity(), response.secret()};
  }
  std::shared_ptr<StreamSocket> Dial() {
    auto fd =
        ConnectTcp(connection_->server().bulk_address, std::chrono::steady_clock::now() + kStall);
    EXPECT_TRUE(fd.ok()) << fd.status();
    return std::make_shared<StreamSocket>(*std::move(fd), kStall);
  }
  static v1::TransferResponse Attach(StreamSocket& socket, const PresharedKey& ticket) {
    v1::TransferRequest request;
    request.mutable_attach()->set_token(Token(ticket));
    EXPECT_TRUE(SendFrame(socket, request.SerializeAsString(), {}).ok());
    v1::TransferResponse response;
    const auto frame = ReceiveFrame(socket, 1 << 16, 1 << 16);
    if (frame.ok()) EXPECT_TRUE(response.ParseFromString(frame->head));
    return response;
  }
  // A socket that the server takes operations on.
  std::unique_ptr<MessageSocket> Admitted() {
    const PresharedKey ticket = Ticket();
    const auto socket = Dial();
    const v1::TransferResponse answer = Attach(*socket, ticket);
    EXPECT_TRUE(IsProof(answer.attached().proof(), ticket.secret, Prover::kServer, kNonce));
    stream_ = socket;
    auto messages = std::make_unique<MessageSocket>(socket, kMaxMessageBytes, [](bool) {});
    EXPECT_EQ(messages->Start(), absl::OkStatus());
    return messages;
  }
  // `heard`: the last operation whose answer has arrived.
  std::unique_ptr<MessageSocket> Resumed(uint64_t heard = 0) {
    auto socket = Admitted();
    v1::ExecuteRequest open;
    open.set_op_id(1);
    open.set_acknowledged(heard);
    open.mutable_open()->set_protocol(1);
    open.mutable_open()->set_resumable(true);
    open.mutable_open()->set_token(token_);
    open.mutable_open()->set_epoch(epoch_);
    Say(*socket, open);
    EXPECT_EQ(Hear(*socket).open().token(), token_);
    return socket;
  }
  static bool Say(MessageSocket& socket, std::string_view bytes) {
    return socket.Send({{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}}, false);
  }
  static bool Say(MessageSocket& socket, const v1::ExecuteRequest& request) {
    return Say(socket, request.SerializeAsString());
  }
  static v1::ExecuteResponse Hear(MessageSocket& socket) {
    v1::ExecuteResponse response;
    const auto message = socket.Receive();
    EXPECT_TRUE(message.ok() && message->has_value()) << message.status();
    if (message.ok() && message->has_value()) EXPECT_TRUE(response.ParseFromString(**message));
    return response;
  }
  // What the server ended the stream with.
  static absl::Status End(MessageSocket& socket) {
    for (auto message = socket.Receive();; message = socket.Receive()) {
      if (!message.ok()) return message.status();
      if (message->has_value()) continue;
      v1::Ended ended;
      EXPECT_TRUE(ended.ParseFromString(socket.farewell()));
      return absl::Status(static_cast<absl::StatusCode>(ended.code()), ended.message());
    }
  }
  static v1::ExecuteRequest Sync(uint64_t id) {
    v1::ExecuteRequest sync;
    sync.set_op_id(id);
    sync.mutable_sync();
    return sync;
  }

  // A socket on which more is being sent than the system takes, and read by nobody.
  std::unique_ptr<MessageSocket> Unread() {
    constexpr uint64_t kBytes = 64 << 20;
    auto socket = Resumed();
    v1::ExecuteRequest alloc = AllocRequest(7, kBytes), read = ReadRequest(7, 0, kBytes);
    alloc.set_op_id(2);
    read.set_op_id(3);
    EXPECT_TRUE(Say(*socket, alloc) && Say(*socket, read));
    EXPECT_EQ(Hear(*socket).op_id(), 3u);
    // What follows fills what room there is.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return socket;
  }
  // Whether the daemon, which was told to, stops long before anything that it could wait for ends.
  bool Stops() {
    const auto began = std::chrono::steady_clock::now();
    return daemon_->Wait().exit_code == 0 &&
           std::chrono::steady_clock::now() - began < std::chrono::seconds(40);
  }

  std::unique_ptr<RawSession> call_;  // that opened the session
  std::string token_;
  uint64_t epoch_ = 0;
  std::shared_ptr<StreamSocket> stream_;
};

TEST_F(OperationSockets, ASessionGoesOnThereAndEndsWithAFarewell) {
  const auto socket = Resumed();
  EXPECT_FALSE(call_->Finish().ok()) << "its call was left";
  v1::ExecuteRequest alloc;
  alloc.set_op_id(2);
  alloc.mutable_alloc()->set_handle(7);
  alloc.mutable_alloc()->set_bytes(300'000);
  EXPECT_TRUE(Say(*socket, alloc));
  v1::ExecuteRequest write;
  write.set_op_id(3);
  write.mutable_write()->set_handle(7);
  std::string data(300'000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  write.set_data(data);
  const std::string message = write.SerializeAsString();  // of more than is sent at once
  (void)Say(*socket, message);
  v1::ExecuteRequest read;
  read.set_op_id(4);
  read.mutable_read()->set_handle(7);
  read.mutable_read()->set_bytes(data.size());
  // Behind the write, whose end only its thread knows: another way is to read what it wrote.
  while (Stat("telegrad_written_bytes_total") < 300'000) {
  }
  EXPECT_TRUE(Say(*socket, read));
  const v1::ExecuteResponse answer = Hear(*socket);
  EXPECT_EQ(answer.op_id(), 4u);
  EXPECT_EQ(answer.data(), data);
  socket->End("");
  EXPECT_EQ(End(*socket), absl::OkStatus());
  call_.reset();
  EXPECT_TRUE(BecomesZero("telegrad_sessions")) << "the client ended it";
  EXPECT_TRUE(BecomesZero("telegrad_bulk_sockets"));
}

TEST_F(OperationSockets, ACutConnectionLeavesASessionThatIsResumed) {
  for (int i = 0; i < 3; ++i) {
    const auto socket = Resumed(1 + i);
    EXPECT_TRUE(Say(*socket, Sync(2 + i)));
    EXPECT_EQ(Hear(*socket).op_id(), 2u + i);
  }
  EXPECT_EQ(Stat("telegrad_sessions"), 1);
}

TEST_F(OperationSockets, WhatIsNoOperationEndsTheStreamWithTheReason) {
  const struct {
    std::string message;
    bool opened;
    Code code;
    const char* says;
  } kCases[] = {
      {"\xff\xff\xff", true, Code::kInvalidArgument, "malformed"},
      {"\x0a\x05", true, Code::kInvalidArgument, "malformed"},
      {Sync(2).SerializeAsString(), false, Code::kFailedPrecondition, "must be open"},
  };
  for (const auto& one : kCases) {
    Open();
    const auto socket = one.opened ? Resumed() : Admitted();
    EXPECT_TRUE(Say(*socket, one.message));
    const absl::Status end = End(*socket);
    EXPECT_EQ(end.code(), one.code) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr(one.says));
  }
  EXPECT_TRUE(BecomesZero("telegrad_bulk_sockets"));
}

TEST_F(OperationSockets, ALengthOverTheLimitEndsTheConnection) {
  const auto socket = Resumed();
  const std::string lengths = "\xff\xff\xff\x7f" + std::string(4, '\0');
  ASSERT_TRUE(stream_->Send(std::as_bytes(std::span(lengths))).ok());
  EXPECT_EQ(End(*socket).code(), Code::kUnavailable);
  const auto again = Resumed();  // the session is left
  EXPECT_TRUE(Say(*again, Sync(2)));
  EXPECT_EQ(Hear(*again).op_id(), 2u);
}

TEST_F(OperationSockets, ATicketIsGoodOnceAndForItsOwnPurpose) {
  const PresharedKey ticket = Ticket();
  EXPECT_TRUE(Attach(*Dial(), ticket).has_attached());
  const v1::TransferResponse second = Attach(*Dial(), ticket);
  EXPECT_EQ(second.ended().code(), static_cast<uint32_t>(Code::kPermissionDenied));
  // Messages of transfers on a socket for operations.
  const auto socket = Admitted();
  v1::TransferRequest pull;
  pull.mutable_pull()->set_transfer(3);
  EXPECT_TRUE(Say(*socket, pull.SerializeAsString()));
  EXPECT_FALSE(End(*socket).ok());
  // The session of somebody who is not known.
  const auto other = Admitted();
  v1::ExecuteRequest open;
  open.set_op_id(1);
  open.mutable_open()->set_protocol(1);
  open.mutable_open()->set_token(std::string(token_.size(), 'x'));
  open.mutable_open()->set_epoch(epoch_);
  EXPECT_TRUE(Say(*other, open));
  EXPECT_EQ(End(*other).code(), Code::kAborted);
}

// Its session ends at the limit of answers that it has not acknowledged, and others go on. It may
// read too late to see why.
TEST_F(OperationSockets, AClientThatDoesNotReadIsGivenUp) {
  const auto socket = Resumed();
  uint64_t id = 1;
  while (Say(*socket, Sync(++id))) {
  }  // ends when neither side's system takes more, or the server has closed the connection
  const auto session = Session();
  EXPECT_EQ(session->Sync().Get().status(), absl::OkStatus());
  uint64_t heard = 1;
  auto message = socket->Receive();
  for (; message.ok() && message->has_value(); message = socket->Receive()) {
    v1::ExecuteResponse response;
    ASSERT_TRUE(response.ParseFromString(**message));
    ASSERT_EQ(response.op_id(), ++heard);
  }
  EXPECT_GT(heard, 1024u) << "answers that may wait";
  if (!message.ok()) return;
  v1::Ended ended;
  ASSERT_TRUE(ended.ParseFromString(socket->farewell()));
  EXPECT_EQ(ended.code(), static_cast<uint32_t>(Code::kResourceExhausted)) << ended.message();
}

TEST_F(OperationSockets, AServerThatStopsSaysSoThere) {
  const auto socket = Resumed();
  call_.reset();
  connection_.reset();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(End(*socket).code(), Code::kUnavailable);
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

TEST_F(OperationSockets, ASecondSignalDoesNotWaitForAClientThatDoesNotRead) {
  Start({"--drain-seconds", "3600"});
  Open();
  const auto socket = Unread();
  daemon_->Signal(SIGTERM);
  while (connection_->Stats().ok()) {
  }
  daemon_->Signal(SIGTERM);
  EXPECT_TRUE(Stops());
}

TEST_F(OperationSockets, AClientThatBreaksTheRulesIsGoneThoughItDoesNotRead) {
  const auto socket = Unread();
  const std::string lengths(8, '\xff');
  ASSERT_TRUE(stream_->Send(std::as_bytes(std::span(lengths))).ok());
  EXPECT_TRUE(BecomesZero("telegrad_bulk_sockets"));
}

TEST_F(OperationSockets, AConnectionThatSaysNothingIsGivenUp) {
  Start({"--handshake-time", "100"});
  Open();
  const auto socket = Admitted();
  EXPECT_EQ(End(*socket).code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace telegrad
