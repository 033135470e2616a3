// Tickets for transfers from another server: what they permit, and how a transfer ends whose
// sender uses its ticket late, wrongly, or not at all.
#include <sys/socket.h>

#include "tests/server/peers_fixture.h"

namespace telegrad {
namespace {

using Code = absl::StatusCode;

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
  // The one that follows is good, once, though the first connection is still there; that one ends.
  const NextTicket next = NextTicketOf(ticket.key.secret, kNonce);
  const Peers::Ticket following{.key = {next.identity, next.secret}};
  const auto resumed = Dial();
  EXPECT_TRUE(Attach(*resumed, SignedToken(following)).has_attached());
  const auto twice = Dial();
  EXPECT_EQ(CodeOf(Attach(*twice, SignedToken(following))), Code::kPermissionDenied);
  absl::Status over;
  while (over.ok()) over = ReceiveFrame(*socket, 1 << 16, 0).status();
  EXPECT_TRUE(absl::IsUnavailable(over)) << over;
  sink_->Await([&] { return metrics_.count(Metric::kBulkSockets) == 1; });
  ASSERT_TRUE(Say(*resumed, ChunkHead(ticket.transfer, 0, "1234"), "1234").ok());
  sink_->Await(
      [&] { return (*session().transfers().FindUpload(ticket.transfer))->Stat().missing.empty(); });
}

// A request whose answer was lost is sent again: there is one transfer for it.
TEST_F(PeersTest, ARequestThatIsSentAgainHasTheSameTicket) {
  session();
  const std::string& key = other_->public_key();
  const auto first = *peers_->Admit(session_, key, 4, 0, /*request=*/7);
  const auto again = *peers_->Admit(session_, key, 4, 0, 7);
  EXPECT_EQ(again.transfer, first.transfer);
  EXPECT_EQ(again.key.identity, first.key.identity);
  EXPECT_EQ(again.key.secret, first.key.secret);
  EXPECT_EQ(peers_->Admit(session_, key, 5, 0, 7).status().code(), Code::kInvalidArgument);
  EXPECT_NE(peers_->Admit(session_, key, 4, 0, 8)->transfer, first.transfer);
  EXPECT_NE(peers_->Admit(session_, key, 4, 0)->transfer,
            peers_->Admit(session_, key, 4, 0)->transfer)
      << "requests without numbers are different ones";
  // Another session's numbers are its own, and one that is over is not given again.
  const auto mine = std::exchange(session_, nullptr);
  session();
  EXPECT_NE(peers_->Admit(session_, key, 4, 0, 7)->key.identity, first.key.identity);
  session_->Close();
  session_ = mine;
  mine->transfers().Finish(first.transfer);
  EXPECT_NE(peers_->Admit(session_, key, 4, 0, 7)->transfer, first.transfer);
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

TEST_F(PeersTest, OneOperationReceivesATransfer) {
  Fill(1, "1234");
  Fill(2, "----");
  const auto ticket = Admit(4);
  const uint64_t received = Submit(ReceiveOp{2, 0, 4, ticket.transfer});
  Alloc(3, 4);
  const uint64_t another = Submit(ReceiveOp{3, 0, 4, ticket.transfer});
  Submit(SendOf(1, 0, 4, ticket, address()));
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_EQ(StatusOf(another).code(), Code::kNotFound);
  EXPECT_EQ(Bytes(Read(2, 4)), "1234");
  EXPECT_EQ(StatusOf(Submit(ReceiveOp{2, 0, 4, ticket.transfer})).code(), Code::kNotFound);
  EXPECT_EQ(StatusOf(Read(2, 4)).code(), Code::kNotFound) << "what was not received is poisoned";
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

// What arrives for a buffer after a Receive that has ended early still comes after the run before.
TEST_F(PeersTest, AReceiveThatEndsEarlyHidesNoRun) {
  Put(1);
  Fill(1, "----");
  Fill(2, "old!");
  Fill(3, "new!");
  const auto first = Admit(4, other_->public_key()), second = Admit(4);
  const auto upload = *session().transfers().FindUpload(second.transfer);
  engine_.gate.Close();
  const uint64_t run = Run(1, 2);
  const uint64_t ended = Submit(ReceiveOp{1, 0, 4, first.transfer});
  Alloc(4, 4);  // goes on, so the Receive has begun
  sink_->Await([&] { return metrics_.count(Metric::kBuffers) == 4; });
  session().Cancel(*sink_, ++last_id_, ended, ended);
  // It ends, though its answer comes after that of the run.
  sink_->Await([&] { return !session().transfers().FindUpload(first.transfer).ok(); });
  const uint64_t received = Submit(ReceiveOp{1, 0, 4, second.transfer});
  Submit(SendOf(3, 0, 4, second, address()));
  sink_->Await([&] { return upload->Stat().missing.empty(); });
  engine_.gate.Open();
  EXPECT_EQ(StatusOf(run), absl::OkStatus());
  EXPECT_EQ(StatusOf(ended).code(), Code::kCancelled);
  EXPECT_EQ(StatusOf(received), absl::OkStatus());
  EXPECT_EQ(Bytes(Read(1, 4)), "new!");
}

// Into no buffer: what was admitted for a copy that is not made is given back.
TEST_F(PeersTest, ATransferIsGivenBack) {
  Alloc(1, 4);
  const auto ticket = Admit(4, other_->public_key());
  EXPECT_FALSE(StatusOf(Submit(ReceiveOp{0, 0, 0, ticket.transfer})).ok());
  EXPECT_EQ(StatusOf(Submit(ReceiveOp{1, 0, 4, ticket.transfer})).code(), Code::kNotFound);
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

}  // namespace
}  // namespace telegrad
