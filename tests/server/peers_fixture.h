// A session of a server that exchanges buffers with others: with itself, and with the test, which
// acts as another server.
#pragma once

#include <random>
#include <thread>

#include "engine/base/status.h"
#include "engine/net/frames.h"
#include "engine/net/tcp.h"
#include "proto/transport.h"
#include "server/data/bulk_listener.h"
#include "server/data/peers.h"
#include "server/operations/operations.h"
#include "tests/server/bulk_token.h"
#include "tests/server/session_fixture.h"
#include "tests/server/transfer_requests.h"

namespace telegrad {

inline constexpr std::chrono::milliseconds kTestPatience{20'000};

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
  // Before the first use of the session.
  void Start(PeerLimits limits, std::vector<std::string> allowed = {"127.0.0.1:*"},
             bool tls = false) {
    bulk_.reset();
    bulk_ = *BulkListener::Start({.addresses = {"127.0.0.1:0"}, .tls = tls}, &metrics_);
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
            .secret = ticket.key.secret,
            .tls = ticket.tls};
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
    auto fd = ConnectTcp(address(), std::chrono::steady_clock::now() + kTestPatience);
    EXPECT_TRUE(fd.ok()) << fd.status();
    return std::make_unique<StreamSocket>(*std::move(fd), kTestPatience);
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
  static absl::StatusCode CodeOf(const v1::TransferResponse& response) {
    return static_cast<absl::StatusCode>(response.ended().code());
  }

  std::unique_ptr<PeerKey> other_ = *PeerKey::Generate();
  std::unique_ptr<BulkListener> bulk_;
  std::unique_ptr<Peers> peers_;
};

}  // namespace telegrad
