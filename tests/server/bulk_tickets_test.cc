// Tickets for bulk sockets: each is valid once and for a short time, their number is limited,
// and only a client that proves to have a ticket can use it.
#include "server/data/bulk_tickets.h"

#include "engine/base/status.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/bulk_token.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using CodeOf = absl::StatusCode;

class TicketsTest : public SessionTest {
 protected:
  std::shared_ptr<Session> Opened() {
    session();
    return session_;
  }
  fakes::ManualClock clock_;
  BulkTickets tickets_{2, &clock_};
};

TEST_F(TicketsTest, OneIsGoodOnce) {
  const auto key = tickets_.Issue(Opened());
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(tickets_.FindSecret(key->identity), key->secret);
  const auto redeemed = tickets_.Redeem(Token(*key));
  ASSERT_TRUE(redeemed.ok()) << redeemed.status();
  EXPECT_EQ(redeemed->session, session_);
  EXPECT_TRUE(IsProof(redeemed->proof, key->secret, Prover::kServer, kNonce));
  EXPECT_EQ(tickets_.Redeem(Token(*key)).status().code(), CodeOf::kPermissionDenied);
  EXPECT_EQ(tickets_.FindSecret(key->identity), std::nullopt);
}

TEST_F(TicketsTest, NothingButAProofOfTheSecretDoes) {
  const auto key = *tickets_.Issue(Opened()), other = *tickets_.Issue(Opened());
  EXPECT_NE(key.secret, other.secret);
  const std::string good = Token(key);
  std::string nonce = good;
  nonce[20] ^= 1;
  for (const std::string& token :
       {std::string(), key.identity, key.secret, key.identity + key.secret, good + "x",
        good.substr(1), nonce, Token({key.identity, other.secret}),
        StrCat(key.identity, kNonce, Prove(key.secret, Prover::kServer, kNonce))}) {
    EXPECT_EQ(tickets_.Redeem(token).status().code(), CodeOf::kPermissionDenied);
  }
  EXPECT_TRUE(tickets_.Redeem(good).ok()) << "guesses do not use it up";
}

TEST_F(TicketsTest, TheirSocketsHavePlaces) {
  auto one = tickets_.Redeem(Token(*tickets_.Issue(Opened())));
  const auto early = *tickets_.Issue(Opened());
  auto two = tickets_.Redeem(Token(*tickets_.Issue(Opened())));
  EXPECT_EQ(tickets_.places(), 2);
  for (const absl::Status& status :
       {tickets_.Issue(Opened()).status(), tickets_.Redeem(Token(early)).status()}) {
    EXPECT_EQ(status.code(), CodeOf::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--bulk-sockets"));
  }
  one = absl::CancelledError();
  EXPECT_EQ(tickets_.places(), 1);
  EXPECT_TRUE(tickets_.Redeem(Token(early)).ok());
}

TEST_F(TicketsTest, TheyAreForSoonAndForTheirSession) {
  const auto late = *tickets_.Issue(Opened());
  clock_.Advance(BulkTickets::kLifetimeMs * 1'000'000 - 1);
  EXPECT_NE(tickets_.FindSecret(late.identity), std::nullopt);
  clock_.Advance(1);
  EXPECT_EQ(tickets_.FindSecret(late.identity), std::nullopt);
  EXPECT_EQ(tickets_.Redeem(Token(late)).status().code(), CodeOf::kPermissionDenied);
  const auto gone = *tickets_.Issue(Opened());
  session_->Close();
  session_.reset();
  EXPECT_EQ(tickets_.Redeem(Token(gone)).status().code(), CodeOf::kPermissionDenied);
}

TEST_F(TicketsTest, ASessionHasFewThatAreUnused) {
  for (int i = 0; i < BulkTickets::kOfOneSession; ++i) {
    ASSERT_TRUE(tickets_.Issue(Opened()).ok());
  }
  const auto more = tickets_.Issue(session_);
  EXPECT_EQ(more.status().code(), CodeOf::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("8"));
  clock_.Advance(BulkTickets::kLifetimeMs * 1'000'000);
  EXPECT_TRUE(tickets_.Issue(session_).ok());
}

}  // namespace
}  // namespace telegrad
