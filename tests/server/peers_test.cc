// Buffers that travel from one server to another: what arrives, what a ticket is good for, and what
// becomes of both ends when the other one lies, stops or is gone.
#include "server/data/peers.h"

#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <random>
#include <thread>

#include "engine/base/status.h"
#include "engine/net/frames.h"
#include "engine/net/tcp.h"
#include "proto/transport.h"
#include "server/data/bulk_listener.h"
#include "server/operations/operations.h"
#include "tests/fakes/cutting_proxy.h"
#include "tests/server/bulk_token.h"
#include "tests/server/session_fixture.h"
#include "tests/server/transfer_requests.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr std::chrono::milliseconds kPatience{20'000};

class PeersTest : public SessionTest {
 protected:
  void SetUp() override { Start({}); }
  void TearDown() override {
    if (session_) session_->Close();
    bulk_.reset();
    peers_.reset();
    EXPECT_EQ(metrics_.count(Metric::kBulkSockets), 0);
    if (tenant_ == nullptr) return;
    EXPECT_EQ(tenant_->accounts[Quota::kHostStaging].used(), 0);
    EXPECT_EQ(tenant_->accounts[Quota::kOperations].used(), 0);
  }
  void Start(PeerLimits limits, std::vector<std::string> allowed = {"127.0.0.1:*"}) {
    bulk_ = *BulkListener::Start({.addresses = {"127.0.0.1:0"}}, &metrics_);
    peers_ = *Peers::Create(std::move(allowed), &metrics_, limits);
    peers_->SetBulk(bulk_.get());
    env_.peers = peers_.get();
  }
  const std::string& address() const { return bulk_->addresses().front(); }

  Peers::Ticket Admit(uint64_t bytes, const std::string& key, int64_t lifetime_ms = 0) {
    session();
    const auto ticket = peers_->Admit(session_, key, bytes, lifetime_ms);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return *ticket;
  }
  Peers::Ticket Admit(uint64_t bytes) { return Admit(bytes, peers_->public_key()); }
  SendOp SendOf(uint64_t handle, uint64_t offset, uint64_t bytes, const Peers::Ticket& ticket,
                const std::string& to) {
    return {.handle = handle,
            .offset = offset,
            .bytes = bytes,
            .address = to,
            .transfer = ticket.transfer,
            .identity = ticket.key.identity,
            .secret = ticket.key.secret};
  }
  static std::string Noise(size_t size) {
    std::mt19937 random(static_cast<uint32_t>(size));
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  }
  void Fill(uint64_t handle, const std::string& bytes) {
    Alloc(handle, bytes.size());
    Write(handle, bytes);
    ASSERT_TRUE(Sync().ok());
  }

  // Another server, as far as this one sees it.
  std::string SignedToken(const Peers::Ticket& ticket) const {
    const std::string token = Token(ticket.key);
    return token + *other_->Sign(token);
  }
  std::unique_ptr<StreamSocket> Dial() const {
    auto fd = ConnectTcp(address(), std::chrono::steady_clock::now() + kPatience);
    EXPECT_TRUE(fd.ok()) << fd.status();
    return std::make_unique<StreamSocket>(*std::move(fd), kPatience);
  }
  static absl::Status Say(StreamSocket& socket, const v1::TransferRequest& request,
                          std::string_view data = {}) {
    return SendFrame(socket, request.SerializeAsString(), std::as_bytes(std::span(data)));
  }
  // Anything but credit; an empty message when the connection is over.
  static v1::TransferResponse Hear(StreamSocket& socket) {
    v1::TransferResponse response;
    do {
      const auto frame = ReceiveFrame(socket, 1 << 16, 0);
      if (!frame.ok()) return {};
      EXPECT_TRUE(response.ParseFromString(frame->head));
    } while (response.has_credit());
    return response;
  }
  v1::TransferResponse Attach(StreamSocket& socket, const std::string& token) const {
    v1::TransferRequest request;
    request.mutable_attach()->set_token(token);
    EXPECT_TRUE(Say(socket, request).ok());
    return Hear(socket);
  }
  static Code CodeOf(const v1::TransferResponse& response) {
    return static_cast<Code>(response.ended().code());
  }

  std::unique_ptr<PeerKey> other_ = *PeerKey::Generate();
  std::unique_ptr<BulkListener> bulk_;
  std::unique_ptr<Peers> peers_;
};

TEST_F(PeersTest, APartOfABufferArrives) {
  constexpr uint64_t kBytes = (5 << 20) + 3;
  const std::string data = Noise(kBytes + 100);
  Fill(1, data);
  Fill(2, std::string(kBytes + 7, 'x'));
  const auto ticket = Admit(kBytes);
  const uint64_t received = Submit(ReceiveOp{2, 7, kBytes, ticket.transfer});
  const uint64_t sent = Submit(SendOf(1, 50, kBytes, ticket, address()));
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_EQ(StatusOf(sent), absl::OkStatus());
  EXPECT_TRUE(Bytes(Read(2, kBytes, 7)) == data.substr(50, kBytes));
  EXPECT_EQ(Bytes(Read(2, 7)), "xxxxxxx");
  EXPECT_EQ(metrics_.count(Metric::kPeerBytesSent), static_cast<int64_t>(kBytes));
  EXPECT_EQ(metrics_.count(Metric::kPeerBytesReceived), static_cast<int64_t>(kBytes));
}

// Two that are told of both copies in opposite orders do not wait for each other, though what is
// received first is what is sent last.
TEST_F(PeersTest, WhatWaitsForBytesKeepsNothingElseWaiting) {
  const std::string a = Noise(3 << 20), b = Noise(2 << 20);
  Fill(1, a);
  Fill(2, b);
  Alloc(3, a.size());
  Alloc(4, b.size());
  const auto first = Admit(a.size()), second = Admit(b.size());
  const uint64_t into3 = Submit(ReceiveOp{3, 0, a.size(), first.transfer});
  const uint64_t into4 = Submit(ReceiveOp{4, 0, b.size(), second.transfer});
  Submit(SendOf(2, 0, b.size(), second, address()));
  Submit(SendOf(1, 0, a.size(), first, address()));
  EXPECT_EQ(StatusOf(into3), absl::OkStatus());
  EXPECT_EQ(StatusOf(into4), absl::OkStatus());
  EXPECT_TRUE(Bytes(Read(3, a.size())) == a);
  EXPECT_TRUE(Bytes(Read(4, b.size())) == b);
}

// What comes before its operation is staged; what uses the buffer meanwhile comes first, and what
// writes it afterwards comes last.
TEST_F(PeersTest, TheOrderOnABufferIsThatOfTheOperations) {
  const std::string data = Noise(1 << 20), later = Noise((1 << 20) + 1).substr(1);
  Fill(1, data);
  Fill(2, std::string(data.size(), '-'));
  const auto ticket = Admit(data.size());
  const uint64_t sent = Submit(SendOf(1, 0, data.size(), ticket, address()));
  while (metrics_.count(Metric::kPeerBytesReceived) < static_cast<int64_t>(data.size())) {
    std::this_thread::yield();
  }
  const uint64_t before = Read(2, 1),
                 received = Submit(ReceiveOp{2, 0, data.size(), ticket.transfer});
  const uint64_t after = Read(2, data.size());
  Write(2, later);
  Write(1, later);  // over what was sent
  EXPECT_EQ(StatusOf(sent), absl::OkStatus());
  EXPECT_EQ(Bytes(before), "-");
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_TRUE(Bytes(after) == data);
  EXPECT_TRUE(Bytes(Read(2, later.size())) == later);
}

TEST_F(PeersTest, BrokenConnectionsAreResumed) {
  constexpr int kCuts = 6;
  const std::string data = Noise(24 << 20);
  Fill(1, data);
  Alloc(2, data.size());
  fakes::CuttingProxy proxy(address());
  proxy.CutEachAfter(3 << 20, kCuts);
  const auto ticket = Admit(data.size());
  const uint64_t received = Submit(ReceiveOp{2, 0, data.size(), ticket.transfer});
  const uint64_t sent = Submit(SendOf(1, 0, data.size(), ticket, proxy.address()));
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  // What a broken connection still held may end the transfer while the next one is being opened:
  // then the sender does not hear of it, and the receiver's answer counts.
  const absl::Status told = StatusOf(sent);
  EXPECT_TRUE(told.ok() || absl::IsPermissionDenied(told)) << told;
  EXPECT_TRUE(Bytes(Read(2, data.size())) == data);
  EXPECT_EQ(proxy.cuts(), kCuts);
  // A broken connection costs at most what was on its way.
  EXPECT_LT(metrics_.count(Metric::kPeerBytesSent),
            static_cast<int64_t>(data.size()) + kCuts * (8 << 20));
}

TEST_F(PeersTest, OnlyAllowedAddressesAreConnected) {
  bulk_.reset();
  Start({}, {"10.0.0.1:50057", "far.example:*"});
  Fill(1, "1234");
  fakes::CuttingProxy nobody("127.0.0.1:1");
  for (const std::string& to :
       {nobody.address(), std::string("10.0.0.1:50058"), std::string("10.0.0.1:50057 "),
        std::string("far.example.org:1"), std::string("far.example:"), std::string("far.example"),
        std::string("far.example:*"), std::string(":1"), std::string(),
        std::string("unix:/far.example:1")}) {
    const absl::Status status = StatusOf(
        Submit(SendOf(1, 0, 4, {.key = {std::string(16, 'i'), std::string(32, 's')}}, to)));
    EXPECT_EQ(status.code(), Code::kPermissionDenied) << to << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--peer"));
  }
  EXPECT_TRUE(peers_->CheckAllowed("far.example:1").ok());
  EXPECT_TRUE(peers_->CheckAllowed("10.0.0.1:50057").ok());
  for (const char* wrong : {"", "host", "host:", ":1", "host:x", "host:1x", "host:123456"}) {
    EXPECT_EQ(Peers::Create({wrong}, &metrics_).status().code(), Code::kInvalidArgument) << wrong;
  }
}

TEST_F(PeersTest, ATicketIsGoodOnceAndForItsServer) {
  const auto ticket = Admit(4, other_->public_key());
  const std::string token = Token(ticket.key);
  const auto stranger = *PeerKey::Generate();
  for (const std::string& wrong :
       {token, token + *stranger->Sign(token), token + std::string(kPeerSignatureBytes, 'x'),
        token + *other_->Sign(token + "x")}) {
    const auto socket = Dial();
    EXPECT_EQ(CodeOf(Attach(*socket, wrong)), Code::kPermissionDenied);
  }
  const auto socket = Dial();
  const v1::TransferResponse attached = Attach(*socket, SignedToken(ticket));
  ASSERT_TRUE(attached.has_attached());
  ASSERT_EQ(attached.attached().missing_size(), 1);
  EXPECT_EQ(attached.attached().missing(0).bytes(), 4u);
  EXPECT_TRUE(IsProof(attached.attached().proof(), ticket.key.secret, Prover::kServer, kNonce));
  const auto again = Dial();
  EXPECT_EQ(CodeOf(Attach(*again, SignedToken(ticket))), Code::kPermissionDenied);
  // The one that follows is good, once, though the first connection is still there.
  const NextTicket next = NextTicketOf(ticket.key.secret, kNonce);
  const Peers::Ticket following{.key = {next.identity, next.secret}};
  const auto resumed = Dial();
  EXPECT_TRUE(Attach(*resumed, SignedToken(following)).has_attached());
  const auto twice = Dial();
  EXPECT_EQ(CodeOf(Attach(*twice, SignedToken(following))), Code::kPermissionDenied);
}

// A ticket of a client is none of a server's, and the other way round.
TEST_F(PeersTest, TicketsOfClientsAndServersAreDifferent) {
  session();
  const auto of_client = *bulk_->Admit(session_);
  const auto socket = Dial();
  EXPECT_EQ(CodeOf(Attach(*socket, SignedToken({.key = of_client}))), Code::kPermissionDenied);
}

TEST_F(PeersTest, ATicketIsForUploadsToItsTransferAlone) {
  Fill(1, "1234");
  ASSERT_TRUE(StatusOf(Submit(ReadOp{1, 0, 4, 1})).ok());  // a download of the client's
  Submit(WriteOp{1, 0, nullptr, 2, 4});                    // and an upload
  std::vector<v1::TransferRequest> wrong = {ChunkHead(2, 0, "zzzz"), Pull(1, 0, 4)};
  wrong.emplace_back().mutable_release()->set_transfer(1);
  for (const v1::TransferRequest& request : wrong) {
    const auto ticket = Admit(4, other_->public_key());
    const auto socket = Dial();
    ASSERT_TRUE(Attach(*socket, SignedToken(ticket)).has_attached());
    ASSERT_TRUE(Say(*socket, request, request.has_upload() ? "zzzz" : "").ok());
    EXPECT_EQ(CodeOf(Hear(*socket)), Code::kPermissionDenied);
  }
}

TEST_F(PeersTest, AWrongChecksumIsRefusedAndSentAgain) {
  Fill(1, "----");
  const auto ticket = Admit(4, other_->public_key());
  const uint64_t received = Submit(ReceiveOp{1, 0, 4, ticket.transfer});
  const auto socket = Dial();
  ASSERT_TRUE(Attach(*socket, SignedToken(ticket)).has_attached());
  ASSERT_TRUE(Say(*socket, ChunkHead(ticket.transfer, 0, "1234"), "1235").ok());
  const v1::TransferResponse refused = Hear(*socket);
  EXPECT_EQ(static_cast<Code>(refused.refused().code()), Code::kDataLoss);
  ASSERT_TRUE(Say(*socket, ChunkHead(ticket.transfer, 0, "1234"), "1234").ok());
  const v1::TransferResponse ended = Hear(*socket);
  EXPECT_TRUE(ended.has_ended());
  EXPECT_EQ(CodeOf(ended), Code::kOk);
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_EQ(Bytes(Read(1, 4)), "1234");
}

TEST_F(PeersTest, WrongSizesAreRefused) {
  Fill(1, "12345678");
  const auto refused = [&](ReceiveOp op) {
    const absl::Status status = StatusOf(Submit(op));
    Write(1, "12345678");
    return status.code();
  };
  EXPECT_EQ(refused({1, 0, 8, Admit(4).transfer}), Code::kInvalidArgument);
  EXPECT_EQ(refused({1, 5, 4, Admit(4).transfer}), Code::kInvalidArgument);
  EXPECT_EQ(refused({1, UINT64_MAX, 4, Admit(4).transfer}), Code::kInvalidArgument);
  EXPECT_EQ(refused({9, 0, 4, Admit(4).transfer}), Code::kNotFound);
  EXPECT_EQ(refused({1, 0, 4, 5}), Code::kInvalidArgument);
  EXPECT_EQ(refused({1, 0, 4, Transfers::kFirstAdmitted + 1000}), Code::kNotFound);
  EXPECT_EQ(StatusOf(Submit(WriteOp{1, 0, nullptr, Transfers::kFirstAdmitted + 1, 4})).code(),
            Code::kInvalidArgument);
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX}) {
    EXPECT_EQ(peers_->Admit(session_, other_->public_key(), bytes, 0).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(peers_->Admit(session_, "short", 4, 0).status().code(), Code::kInvalidArgument);
  for (SendOp op : {SendOf(1, 5, 4, Admit(4), address()), SendOf(1, 0, 0, Admit(4), address()),
                    SendOf(1, UINT64_MAX, 4, Admit(4), address())}) {
    EXPECT_EQ(StatusOf(Submit(std::move(op))).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(StatusOf(Submit(SendOf(9, 0, 4, Admit(4), address()))).code(), Code::kNotFound);
}

// Chunks outside of what was admitted, though the other server shows a valid ticket.
TEST_F(PeersTest, AServerThatSendsMoreThanItsTicketSaysIsRefused) {
  Fill(1, "--------");
  const auto ticket = Admit(4, other_->public_key());
  const uint64_t received = Submit(ReceiveOp{1, 0, 4, ticket.transfer});
  const auto socket = Dial();
  ASSERT_TRUE(Attach(*socket, SignedToken(ticket)).has_attached());
  ASSERT_TRUE(Say(*socket, ChunkHead(ticket.transfer, 0, "12345"), "12345").ok());
  EXPECT_EQ(static_cast<Code>(Hear(*socket).refused().code()), Code::kInvalidArgument);
  ASSERT_TRUE(Say(*socket, ChunkHead(ticket.transfer, 0, "1234"), "1234").ok());
  EXPECT_TRUE(Hear(*socket).has_ended());
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_EQ(Bytes(Read(1, 8)), "1234----");
}

TEST_F(PeersTest, ATicketThatNobodyUsesEndsItsTransfer) {
  Fill(1, "1234");
  const auto ticket = Admit(4, other_->public_key(), /*lifetime_ms=*/1);
  const absl::Status late = StatusOf(Submit(ReceiveOp{1, 0, 4, ticket.transfer}));
  // Perhaps the transfer is over before the operation comes.
  EXPECT_TRUE(absl::IsDeadlineExceeded(late) || absl::IsNotFound(late)) << late;
  EXPECT_EQ(StatusOf(Read(1, 4)).code(), late.code()) << "what was not received is poisoned";
  const auto socket = Dial();
  EXPECT_EQ(CodeOf(Attach(*socket, SignedToken(ticket))), Code::kPermissionDenied);
}

TEST_F(PeersTest, AServerThatStopsSendingIsGivenUp) {
  bulk_.reset();
  Start({.stall_ms = 30});
  Fill(1, "12345678");
  const auto ticket = Admit(8, other_->public_key());
  const uint64_t received = Submit(ReceiveOp{1, 0, 8, ticket.transfer});
  const auto socket = Dial();
  ASSERT_TRUE(Attach(*socket, SignedToken(ticket)).has_attached());
  ASSERT_TRUE(Say(*socket, ChunkHead(ticket.transfer, 0, "1234"), "1234").ok());
  const absl::Status status = StatusOf(received);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_EQ(CodeOf(Hear(*socket)), Code::kDeadlineExceeded);
  EXPECT_EQ(StatusOf(Read(1, 4)).code(), Code::kDeadlineExceeded);
}

TEST_F(PeersTest, WhatIsCancelledEnds) {
  Fill(1, "1234");
  Alloc(2, 4);
  const auto ticket = Admit(4, other_->public_key());
  const uint64_t received = Submit(ReceiveOp{2, 0, 4, ticket.transfer});
  // One that takes connections and says nothing.
  const UniqueFd listener = *ListenTcp("127.0.0.1:0");
  const uint64_t sent = Submit(SendOf(1, 0, 4, Admit(4), StrCat("127.0.0.1:", PortOf(listener))));
  session().Cancel(*sink_, ++last_id_, received, sent);
  EXPECT_EQ(StatusOf(received).code(), Code::kCancelled);
  EXPECT_EQ(StatusOf(sent).code(), Code::kCancelled);
  EXPECT_EQ(StatusOf(Read(2, 4)).code(), Code::kCancelled);
  Write(1, "5678");  // its buffer is not in use
  EXPECT_EQ(Bytes(Read(1, 4)), "5678");
}

TEST_F(PeersTest, TheEndOfASessionEndsBothHalves) {
  Fill(1, Noise(1 << 20));
  Alloc(2, 1 << 20);
  const auto ticket = Admit(1 << 20, other_->public_key());
  Submit(ReceiveOp{2, 0, 1 << 20, ticket.transfer});
  const UniqueFd listener = *ListenTcp("127.0.0.1:0");
  Submit(SendOf(1, 0, 1 << 20, Admit(1 << 20), StrCat("127.0.0.1:", PortOf(listener))));
  const auto socket = Dial();
  ASSERT_TRUE(Attach(*socket, SignedToken(ticket)).has_attached());
  session_->Close();
  absl::Status over;
  while (over.ok()) over = ReceiveFrame(*socket, 1 << 16, 0).status();
  EXPECT_TRUE(absl::IsUnavailable(over)) << over;
}

// A server that takes what is sent as the test says.
class LyingServer {
 public:
  using Behave = std::function<void(StreamSocket&, const Peers::Ticket&)>;

  LyingServer(Peers::Ticket ticket, Behave behave) : ticket_(std::move(ticket)) {
    thread_ = std::thread([this, behave = std::move(behave)] {
      while (true) {
        pollfd ready{listener_.get(), POLLIN, 0};
        poll(&ready, 1, -1);
        UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
        if (!fd.valid()) return;
        StreamSocket socket(std::move(fd), kPatience);
        const auto frame = ReceiveFrame(socket, 4096, 0);
        v1::TransferRequest request;
        if (!frame.ok() || !request.ParseFromString(frame->head)) continue;
        token_ = request.attach().token();
        behave(socket, ticket_);
        socket.Shutdown();
      }
    });
  }
  ~LyingServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string address() const { return StrCat("127.0.0.1:", PortOf(listener_)); }
  v1::TransferResponse Attached() const {
    v1::TransferResponse response;
    v1::Attached& attached = *response.mutable_attached();
    attached.set_credit(1 << 20);
    attached.set_chunk_bytes(1 << 10);
    attached.set_proof(Prove(ticket_.key.secret, Prover::kServer,
                             std::string_view(token_).substr(kIdentityBytes, kNonceBytes)));
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
  const UniqueFd listener_ = *ListenTcp("127.0.0.1:0");
  const Peers::Ticket ticket_;
  std::string token_;
  std::thread thread_;
};

TEST_F(PeersTest, AReceiverThatLiesIsAnError) {
  Fill(1, "1234");
  const Peers::Ticket ticket{
      .transfer = Transfers::kFirstAdmitted,
      .key = {std::string(kIdentityBytes, 'i'), std::string(kSecretBytes, 's')}};
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
      {"ends with an error", nullptr, [](auto& r) { r.mutable_ended()->set_code(9); },
       Code::kFailedPrecondition},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    LyingServer* self = nullptr;
    LyingServer server(ticket, [&](StreamSocket& socket, const Peers::Ticket&) {
      v1::TransferResponse response = self->Attached();
      if (one.attached) one.attached(response);
      LyingServer::Answer(socket, response);
      if (!one.then) return LyingServer::TakeChunk(socket);
      v1::TransferResponse then;
      one.then(then);
      while (socket.AwaitInput().ok()) {
        const auto frame = ReceiveFrame(socket, 4096, 1 << 20);
        if (!frame.ok() || !SkipPayload(socket, frame->payload_bytes).ok()) return;
        LyingServer::Answer(socket, then);
      }
    });
    self = &server;
    const absl::Status status = StatusOf(Submit(SendOf(1, 0, 4, ticket, server.address())));
    EXPECT_EQ(status.code(), one.code) << status;
    Write(1, "1234");  // its buffer is not in use
    ASSERT_TRUE(Sync().ok());
  }
}

}  // namespace
}  // namespace telegrad
