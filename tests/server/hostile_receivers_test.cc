// Buffers that are sent to a server that answers wrongly, stops reading or never completes the
// transfer: the send fails, or can be cancelled.
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <map>

#include "tests/server/peers_fixture.h"

namespace telegrad {
namespace {

using Code = absl::StatusCode;

// A server that takes what is sent as the test says.
class LyingServer {
 public:
  using Behave = std::function<void(StreamSocket&)>;

  explicit LyingServer(Behave behave) {
    secrets_[ticket_.key.identity] = ticket_.key.secret;
    thread_ = std::thread([this, behave = std::move(behave)] {
      while (true) {
        pollfd ready{listener_.get(), POLLIN, 0};
        poll(&ready, 1, -1);
        UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
        if (!fd.valid()) return;
        StreamSocket socket(std::move(fd), kTestPatience);
        const auto frame = ReceiveFrame(socket, 4096, 0);
        v1::TransferRequest request;
        if (!frame.ok() || !request.ParseFromString(frame->head)) continue;
        Learn(request.attach().token());
        behave(socket);
        socket.Shutdown();
      }
    });
  }
  ~LyingServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const Peers::Ticket& ticket() const { return ticket_; }
  std::string address() const { return StrCat("127.0.0.1:", PortOf(listener_)); }
  v1::TransferResponse Attached() const {
    v1::TransferResponse response;
    v1::Attached& attached = *response.mutable_attached();
    attached.set_credit(1 << 20);
    attached.set_chunk_bytes(1 << 10);
    attached.set_proof(Prove(secret_, Prover::kServer, nonce_));
    v1::ByteRange& missing = *attached.add_missing();
    missing.set_bytes(4);
    return response;
  }
  static void Answer(StreamSocket& socket, const v1::TransferResponse& response) {
    (void)SendFrame(socket, response.SerializeAsString(), {});
  }
  static void TakeChunk(StreamSocket& socket) {
    const auto frame = ReceiveFrame(socket, 4096, 1 << 20);
    if (frame.ok()) (void)SkipPayload(socket, frame->payload_bytes);
  }

 private:
  // It knows the ticket, and so the next one.
  void Learn(const std::string& token) {
    secret_ = secrets_[token.substr(0, kIdentityBytes)];
    nonce_ = token.substr(kIdentityBytes, kNonceBytes);
    NextTicket next = NextTicketOf(secret_, nonce_);
    secrets_[std::move(next.identity)] = std::move(next.secret);
  }

  const UniqueFd listener_ = *ListenTcp("127.0.0.1:0");
  const Peers::Ticket ticket_{
      .transfer = Transfers::kFirstAdmitted,
      .key = {std::string(kIdentityBytes, 'i'), std::string(kSecretBytes, 's')}};
  // Of the thread.
  std::map<std::string, std::string> secrets_;
  std::string secret_, nonce_;
  std::thread thread_;
};

TEST_F(PeersTest, AReceiverThatLiesIsAnError) {
  Fill(1, "1234");
  struct Case {
    const char* what;
    std::function<void(v1::TransferResponse&)> attached;
    std::function<void(v1::TransferResponse&)> then;
    Code code;
  };
  const auto credit = [](uint64_t bytes) {
    return [bytes](v1::TransferResponse& r) { r.mutable_credit()->set_bytes(bytes); };
  };
  const Case cases[] = {
      {"no proof", [](auto& r) { r.mutable_attached()->set_proof("x"); }, nullptr,
       Code::kPermissionDenied},
      {"no attached", [](auto& r) { r.mutable_credit(); }, nullptr, Code::kPermissionDenied},
      {"chunks of 0", [](auto& r) { r.mutable_attached()->set_chunk_bytes(0); }, nullptr,
       Code::kInternal},
      {"misses too much", [](auto& r) { r.mutable_attached()->mutable_missing(0)->set_bytes(5); },
       nullptr, Code::kInternal},
      {"misses far away",
       [](auto& r) { r.mutable_attached()->mutable_missing(0)->set_offset(UINT64_MAX); }, nullptr,
       Code::kInternal},
      {"credit of 0", nullptr, credit(0), Code::kInternal},
      {"credit that was not used", nullptr, credit(5), Code::kInternal},
      {"a chunk", nullptr, [](auto& r) { r.mutable_download(); }, Code::kInternal},
      {"refuses what was not sent", nullptr,
       [](auto& r) {
         r.mutable_refused()->set_code(15);
         r.mutable_refused()->set_bytes(5);
       },
       Code::kInternal},
      {"refuses without end", nullptr,
       [](auto& r) {
         r.mutable_refused()->set_code(15);
         r.mutable_refused()->set_bytes(4);
       },
       Code::kDataLoss},
      {"says without end that it is over", nullptr,
       [](auto& r) {
         r.mutable_refused()->set_code(5);
         r.mutable_refused()->set_bytes(4);
       },
       Code::kDataLoss},
      {"misses a range twice",
       [](auto& r) { *r.mutable_attached()->add_missing() = r.attached().missing(0); }, nullptr,
       Code::kInternal},
      {"ends with an error", nullptr, [](auto& r) { r.mutable_ended()->set_code(9); },
       Code::kFailedPrecondition},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    LyingServer* self = nullptr;
    LyingServer server([&](StreamSocket& socket) {
      v1::TransferResponse response = self->Attached();
      if (one.attached) one.attached(response);
      LyingServer::Answer(socket, response);
      if (!one.then) return LyingServer::TakeChunk(socket);
      v1::TransferResponse then;
      one.then(then);
      while (socket.AwaitInput().ok()) {
        const auto frame = ReceiveFrame(socket, 4096, 1 << 20);
        if (!frame.ok() || !SkipPayload(socket, frame->payload_bytes).ok()) return;
        for (int i = 0; i < 100; ++i) LyingServer::Answer(socket, then);
      }
    });
    self = &server;
    const absl::Status status =
        StatusOf(Submit(SendOf(1, 0, 4, server.ticket(), server.address())));
    EXPECT_EQ(status.code(), one.code) << status;
    Write(1, "1234");  // its buffer is not in use
    ASSERT_TRUE(Sync().ok());
  }
}

// One that always says that everything is missing.
TEST_F(PeersTest, AReceiverThatGetsNoFurtherIsGivenUp) {
  Start({.patience = {.reach = std::chrono::milliseconds(100)}});
  Fill(1, "1234");
  LyingServer* self = nullptr;
  std::atomic<int> connections{0};
  LyingServer server([&](StreamSocket& socket) {
    ++connections;
    LyingServer::Answer(socket, self->Attached());
    LyingServer::TakeChunk(socket);
  });
  self = &server;
  const absl::Status status = StatusOf(Submit(SendOf(1, 0, 4, server.ticket(), server.address())));
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("has taken no byte"));
  EXPECT_GT(connections, 1);
}

// Nor does it help to keep each connection, after it has taken everything.
TEST_F(PeersTest, AReceiverThatTakesEverythingAgainIsGivenUp) {
  constexpr std::chrono::milliseconds kReach{50};
  Start({.patience = {.reach = kReach}});
  Fill(1, "1234");
  LyingServer* self = nullptr;
  LyingServer server([&](StreamSocket& socket) {
    LyingServer::Answer(socket, self->Attached());
    LyingServer::TakeChunk(socket);
    socket.SetDeadline(std::chrono::steady_clock::now() + 2 * kReach);
    (void)ReceiveFrame(socket, 4096, 0);
  });
  self = &server;
  const absl::Status status = StatusOf(Submit(SendOf(1, 0, 4, server.ticket(), server.address())));
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
}

// One that misses less each time, and so always gets a little further, but asks for all of that
// again: nobody pays for those bytes.
TEST_F(PeersTest, AReceiverThatHasTheBytesSentAgainIsGivenUp) {
  constexpr uint64_t kBytes = 1 << 10, kAgain = 2 << 10;
  Start({.patience = {.again = kAgain}});
  Fill(1, std::string(kBytes, 'x'));
  LyingServer* self = nullptr;
  std::atomic<uint64_t> missing{kBytes}, taken{0};
  LyingServer server([&](StreamSocket& socket) {
    v1::TransferResponse response = self->Attached();
    response.mutable_attached()->mutable_missing(0)->set_bytes(missing);
    LyingServer::Answer(socket, response);
    const auto frame = ReceiveFrame(socket, 4096, 1 << 20);
    if (!frame.ok() || !SkipPayload(socket, frame->payload_bytes).ok()) return;
    taken += frame->payload_bytes;
    --missing;
  });
  self = &server;
  const absl::Status status =
      StatusOf(Submit(SendOf(1, 0, kBytes, server.ticket(), server.address())));
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("still misses some"));
  EXPECT_GT(taken, 4 * kBytes) << "what may be lost on the way is sent again";
  EXPECT_LE(taken, 5 * kBytes + kAgain);
}

// One that has no room for as long as the sender is ready to wait.
TEST_F(PeersTest, AReceiverWithoutRoomIsGivenUp) {
  Start({.patience = {.reach = std::chrono::milliseconds(1),
                      .room = std::chrono::milliseconds(200)}});
  Fill(1, "1234");
  std::atomic<int> connections{0};
  LyingServer server([&](StreamSocket& socket) {
    ++connections;
    v1::TransferResponse full;
    full.mutable_ended()->set_code(static_cast<uint32_t>(Code::kResourceExhausted));
    full.mutable_ended()->set_message("no room");
    LyingServer::Answer(socket, full);
  });
  const absl::Status status = StatusOf(Submit(SendOf(1, 0, 4, server.ticket(), server.address())));
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("no room"));
  EXPECT_GT(connections, 1);
}

// One that takes the ticket and then reads nothing: the send lasts until it is cancelled, and no
// longer.
TEST_F(PeersTest, AReceiverThatStopsReadingHoldsNothingThatIsCancelled) {
  constexpr uint64_t kBytes = 64 << 20;
  Fill(1, std::string(kBytes, 'x'));
  LyingServer* self = nullptr;
  Timeline attached, over;
  LyingServer server([&](StreamSocket& socket) {
    v1::TransferResponse response = self->Attached();
    response.mutable_attached()->set_credit(kBytes);
    response.mutable_attached()->mutable_missing(0)->set_bytes(kBytes);
    LyingServer::Answer(socket, response);
    attached.Signal(1);
    over.Wait(1, absl::Seconds(60)).IgnoreError();
  });
  self = &server;
  const uint64_t sent = Submit(SendOf(1, 0, kBytes, server.ticket(), server.address()));
  ASSERT_TRUE(attached.Wait(1, absl::Seconds(60)).ok());
  session().Cancel(*sink_, ++last_id_, sent, sent);
  EXPECT_EQ(StatusOf(sent).code(), Code::kCancelled);
  over.Signal(1);
  Write(1, "1234");  // its buffer is not in use
  ASSERT_TRUE(Sync().ok());
}

}  // namespace
}  // namespace telegrad
