// Tenants of a front on the server behind it: apart, each under its own name, and only those for
// whom that server lets the front act.
#include "engine/ir/content_hash.h"
#include "tests/remote/two_daemons.h"
#include "tests/server/auth_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class FrontTenants : public AuthTest {
 protected:
  // What the far server's tenants may do.
  void StartBoth(const std::string& tenants) {
    const std::string file = keys_->path("tenants"), token = keys_->path("front.token");
    std::ofstream(file) << tenants;
    std::ofstream(token) << keys_->Token("front") << "\n";
    Start({"--jwt-keys", keys_->path("jwt"), "--tenants", file});
    far_ = std::move(daemon_);
    far_address_ = address_;
    Start({"--jwt-keys", keys_->path("jwt"), "--remote", "b=" + far_address_, "--remote-tls-ca",
           keys_->path("ca.pem"), "--remote-token-file", token});
  }
  // A buffer on the far device, written: how that ended.
  absl::Status Use(const std::string& tenant) {
    const auto connection = Connect(address_, keys_->WithToken(keys_->Token(tenant)));
    EXPECT_TRUE(connection.ok()) << connection.status();
    if (!connection.ok()) return connection.status();
    const auto session = *(*connection)->OpenSession();
    const std::vector<int32_t> words = {1, 2, 3};
    std::vector<int32_t> out(3);
    session->Alloc(1, 12, "b/CPU:0");
    session->Write(1, 0, Bytes(words));
    const auto read = session->Read(1, 0, Writable(out));
    if (read.Get().ok()) {
      EXPECT_EQ(out, words);
    }
    return read.Get().status();
  }
  // A counter of that tenant on the far server.
  double There(const std::string& tenant, const std::string& metric) {
    const auto connection = Connect(far_address_, keys_->WithToken(keys_->Token(tenant)));
    return (*connection)->Stats()->at(metric);
  }

  std::unique_ptr<testing::Process> far_;
  std::string far_address_;
};

TEST_F(FrontTenants, AreApartUnderTheirOwnNames) {
  StartBoth("[front]\nacts_for = alice bob\n[alice]\n[bob]\ndevice_memory = 4\n");
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  EXPECT_EQ(There("alice", "telegrad_written_bytes_total"), 12);
  EXPECT_EQ(There("front", "telegrad_written_bytes_total"), 0);
  // Under the quotas of that server.
  const absl::Status refused = Use("bob");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("device_memory of tenant bob"));
}

TEST_F(FrontTenants, AreThoseThatWereGranted) {
  StartBoth("[front]\nacts_for = alice\n[*]\n");
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  const absl::Status refused = Use("bob");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tenant front may not act for others"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("acts_for"));
}

// Nothing is implied: neither by being known nor by administering.
TEST_F(FrontTenants, AreNoneWithoutAGrant) {
  StartBoth("[*]\n");
  EXPECT_EQ(Use("alice").code(), absl::StatusCode::kPermissionDenied);
  ClientCredentials claims = keys_->WithToken(keys_->Token("ops", {"--admin"}));
  claims.acts_for = "alice";
  EXPECT_EQ(Connect(far_address_, claims).status().code(), absl::StatusCode::kPermissionDenied);
}

// Acting for an administrator's tenant makes nobody an administrator.
TEST_F(FrontTenants, AreNoAdministrators) {
  StartBoth("[front]\nacts_for = *\n[*]\n");
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  ClientCredentials claims = keys_->WithToken(keys_->Token("front"));
  claims.acts_for = "ops";
  const auto connection = Connect(far_address_, claims);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ((*connection)->server().tenant, "ops");
  EXPECT_FALSE((*connection)->Stats()->contains("telegrad_sessions"));
}

}  // namespace
}  // namespace telegrad
