// Buffers that travel from one server to another: what arrives, in which order, over connections
// that break, and within which limits.
#include <poll.h>
#include <sys/socket.h>

#include "tests/fakes/cutting_proxy.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/peers_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

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
// For the tenant and the session, as well as for the server.
TEST_F(PeersTest, WhatArrivesIsCountedForItsTenant) {
  Fill(1, std::string(1000, 'x'));
  Alloc(2, 1000);
  ASSERT_TRUE(Sync().ok());
  const int64_t before = tenant_->metrics.count(Metric::kBytesWritten);
  const auto ticket = Admit(1000);
  const uint64_t received = Submit(ReceiveOp{2, 0, 1000, ticket.transfer});
  Submit(SendOf(1, 0, 1000, ticket, address()));
  ASSERT_TRUE(StatusOf(received).ok());
  EXPECT_EQ(tenant_->metrics.count(Metric::kBytesWritten), before + 1000);
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), before + 1000);
  EXPECT_EQ(session().counted().count(Metric::kBytesWritten), before + 1000);
}

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

class BrokenPeersTest : public PeersTest {
 protected:
  // All bytes arrive, in their places, though connections break; and few are sent twice.
  void SendOverConnectionsThatBreak() {
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
    EXPECT_TRUE(told.ok() || absl::IsPermissionDenied(told) || absl::IsUnavailable(told)) << told;
    EXPECT_TRUE(Bytes(Read(2, data.size())) == data);
    EXPECT_EQ(proxy.cuts(), kCuts);
    // A broken connection costs at most what was on its way.
    EXPECT_LT(metrics_.count(Metric::kPeerBytesSent),
              static_cast<int64_t>(data.size()) + kCuts * (8 << 20));
  }
};

TEST_F(BrokenPeersTest, BrokenConnectionsAreResumed) { SendOverConnectionsThatBreak(); }

// The keys of the handshakes are those of the tickets that follow each other.
TEST_F(BrokenPeersTest, BrokenConnectionsUnderTlsAreResumed) {
  Start({.patience = {.reach = std::chrono::milliseconds(1'000)}}, {"127.0.0.1:*"}, /*tls=*/true);
  SendOverConnectionsThatBreak();
}

TEST_F(PeersTest, TransfersCountAgainstTheRateOfTheirTenant) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  Fill(1, "12345678");
  Alloc(2, 8);
  const auto ticket = Admit(8);
  quotas_[Quota::kTransferRate] = 1;
  quotas_[Quota::kTransferBurst] = 18;
  tenant_->Limit(quotas_, "ask for more", clock.Ns());
  // 8 bytes were written; the last ones that are admitted may be more than what is left.
  const uint64_t received = Submit(ReceiveOp{2, 0, 8, ticket.transfer});
  EXPECT_EQ(StatusOf(Submit(SendOf(1, 0, 8, ticket, address()))), absl::OkStatus());
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  const absl::Status sent = StatusOf(Submit(SendOf(1, 0, 8, ticket, address())));
  EXPECT_TRUE(absl::IsResourceExhausted(sent)) << sent;
  EXPECT_THAT(std::string(sent.message()), HasSubstr("transfer_rate"));
  const absl::Status refused = StatusOf(Submit(ReceiveOp{2, 0, 8, Admit(8).transfer}));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(tenant_->accounts[Quota::kTransferRate].refused(), 2);
}

// What waits for its buffer leaves room for what that may be waiting for.
TEST_F(PeersTest, TheLastRoomIsForBuffersThatAreReady) {
  env_.limits.staged_bytes = Transfers::kStreams << 20;
  Fill(1, std::string(4, '-'));
  std::vector<std::unique_ptr<StreamSocket>> sockets;
  const auto attach = [&](const Peers::Ticket& ticket) {
    sockets.push_back(Dial());
    return Attach(*sockets.back(), SignedToken(ticket));
  };
  for (int64_t i = 0; i + 1 < Transfers::kStreams; ++i) {
    EXPECT_TRUE(attach(Admit(4, other_->public_key())).has_attached()) << i;
  }
  const auto ticket = Admit(4, other_->public_key());
  const v1::TransferResponse refused = attach(ticket);
  EXPECT_EQ(CodeOf(refused), Code::kResourceExhausted);
  EXPECT_THAT(refused.ended().message(), HasSubstr("is ready"));
  const uint64_t received = Submit(ReceiveOp{1, 0, 4, ticket.transfer});
  v1::TransferResponse attached;
  PresharedKey key = ticket.key;
  while (!attached.has_attached()) {  // until that has had its turn
    NextTicket next = NextTicketOf(key.secret, kNonce);
    key = {std::move(next.identity), std::move(next.secret)};
    attached = attach({.key = key});
    ASSERT_TRUE(attached.has_attached() || CodeOf(attached) == Code::kResourceExhausted);
  }
  ASSERT_TRUE(Say(*sockets.back(), ChunkHead(ticket.transfer, 0, "1234"), "1234").ok());
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_EQ(Bytes(Read(1, 4)), "1234");
}

// So much so that as many as you like arrive, whatever the order in which they are received.
TEST_F(PeersTest, ManyTransfersShareTheRoom) {
  env_.limits.staged_bytes = Transfers::kStreams << 20;
  constexpr uint64_t kMany = 40, kBytes = 100'000;
  const std::string data = Noise(kBytes + kMany);
  Fill(1, data);
  std::vector<Peers::Ticket> tickets;
  std::vector<uint64_t> received;
  for (uint64_t i = 0; i < kMany; ++i) {
    Alloc(2 + i, kBytes);
    tickets.push_back(Admit(kBytes));
    Submit(SendOf(1, i, kBytes, tickets[i], address()));
  }
  for (uint64_t i = 0; i < kMany; ++i) {
    const uint64_t which = i * 7 % kMany;
    received.push_back(Submit(ReceiveOp{2 + which, 0, kBytes, tickets[which].transfer}));
  }
  for (const uint64_t one : received) EXPECT_EQ(StatusOf(one), absl::OkStatus());
  for (uint64_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(Bytes(Read(2 + i, kBytes)) == data.substr(i, kBytes)) << i;
  }
}

// It ends, though the one before it is still waiting for its server.
TEST_F(PeersTest, ACancelledSendDoesNotWaitForItsTurn) {
  Start({.sends = 1});
  const UniqueFd silent = *ListenTcp("127.0.0.1:0");
  const auto queues = std::make_shared<const SessionQueues>(pool_.get(), nullptr);
  std::vector<std::shared_ptr<Cancellation>> wishes;
  Timeline ends[2];
  for (Timeline& end : ends) {
    wishes.push_back(std::make_shared<Cancellation>());
    peers_->Send({.address = StrCat("127.0.0.1:", PortOf(silent)),
                  .transfer = Transfers::kFirstAdmitted,
                  .ticket = {std::string(kIdentityBytes, 'i'), std::string(kSecretBytes, 's')},
                  .bytes = nullptr,  // for the server never asks
                  .cancellation = wishes.back(),
                  .done = [&end](const absl::Status& status) { end.Signal(1, status); }},
                 queues);
  }
  wishes[1]->Cancel();
  EXPECT_EQ(ends[1].Wait(1, absl::Seconds(60)).code(), Code::kCancelled);
  EXPECT_EQ(ends[0].value(), 0u);
  wishes[0]->Cancel();
  EXPECT_EQ(ends[0].Wait(1, absl::Seconds(60)).code(), Code::kCancelled);
}

TEST_F(PeersTest, OnlyAllowedAddressesAreConnected) {
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

}  // namespace
}  // namespace telegrad
