// Sessions by token: which tenant can find them, and when they expire, by a clock that the test
// advances.
#include "server/session/session_registry.h"

#include "tests/fakes/manual_clock.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

class RegistryTest : public SessionTest {
 protected:
  RegistryTest() {
    env_.clock = &clock_;
    env_.limits.lease_ms = 60'000;
    env_.limits.grace_ms = 30'000;
    tenant_ = std::make_shared<Tenant>("alice", AnEngine(), &metrics_);
    registry_ = std::make_unique<SessionRegistry>(env_);
  }
  std::shared_ptr<Session> Open(bool resumable, int64_t lease_ms = 0) {
    auto session = registry_->Create(tenant_, resumable, lease_ms, sink_);
    EXPECT_TRUE(session.ok()) << session.status();
    return *session;
  }
  std::shared_ptr<Engine> AnEngine() {
    return {&engine_, [](Engine*) {}};
  }
  bool Found(const Session& session) {
    return registry_->Find(session.terms().token, registry_->epoch(), *tenant_).ok();
  }

  fakes::ManualClock clock_;
  std::unique_ptr<SessionRegistry> registry_;
};

TEST_F(RegistryTest, TokensAreForTheirTenantAndThisStart) {
  const auto session = Open(false);
  const OpenResult described = registry_->Describe(*session);
  EXPECT_EQ(described.token.size(), 16u);
  EXPECT_EQ(described.lease_ms, 0);
  EXPECT_EQ(*registry_->Find(described.token, described.epoch, *tenant_), session);
  EXPECT_NE(Open(false)->terms().token, described.token);

  const Tenant other("bob", AnEngine(), &metrics_);
  EXPECT_TRUE(absl::IsNotFound(registry_->Find(described.token, described.epoch, other).status()));
  EXPECT_EQ(registry_->Find(described.token, described.epoch, other).status(),
            registry_->Find(std::string(16, 'x'), described.epoch, other).status())
      << "another tenant's session is not told from none";
  EXPECT_TRUE(absl::IsNotFound(registry_->Find("", described.epoch, *tenant_).status()));
  EXPECT_TRUE(
      absl::IsAborted(registry_->Find(described.token, described.epoch + 1, *tenant_).status()));
  EXPECT_NE(SessionRegistry(env_).epoch(), registry_->epoch());
}

TEST_F(RegistryTest, ASessionEndsWithItsStreamUnlessItIsResumable) {
  const auto session = Open(false), kept = Open(true), ended = Open(true);
  registry_->Leave(session, *sink_, /*keep=*/true);
  registry_->Leave(kept, *sink_, /*keep=*/true);
  registry_->Leave(ended, *sink_, /*keep=*/false);
  EXPECT_FALSE(Found(*session));
  EXPECT_TRUE(Found(*kept));
  EXPECT_FALSE(Found(*ended));
  EXPECT_EQ(metrics_.count(Metric::kSessions), 1);
  registry_->Leave(kept, *sink_, /*keep=*/false);
  EXPECT_TRUE(Found(*kept)) << "it is that stream's no more";
  registry_->Close(kept, absl::OkStatus());
  registry_->Close(kept, absl::OkStatus());
  EXPECT_EQ(metrics_.count(Metric::kSessions), 0);
}

TEST_F(RegistryTest, SessionsAreLimitedInNumber) {
  env_.limits.sessions = 2;
  const auto first = Open(false);
  Open(true);
  const absl::Status refused = registry_->Create(tenant_, false, 0, sink_).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("may have 2; raise it with --max-sessions"));
  registry_->Close(first, absl::OkStatus());
  Open(false);
}

TEST_F(RegistryTest, ALeaseIsRenewedByWhateverIsHeard) {
  const auto session = Open(true);
  Open(false);  // has no lease
  EXPECT_EQ(registry_->CloseExpired(), clock_.Ns() + 60'000 * kMs);
  clock_.Advance(50'000 * kMs);
  ASSERT_TRUE(session->Submit(*sink_, {.id = 1, .action = MakeAction(SyncOp{})}).ok());
  EXPECT_EQ(registry_->CloseExpired(), clock_.Ns() + 60'000 * kMs);
  clock_.Advance(50'000 * kMs);
  const auto renewed = registry_->KeepAlive(session->terms().token, registry_->epoch(), *tenant_);
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ((*renewed)->last_operation(), 1u);
  clock_.Advance(50'000 * kMs);
  session->Acknowledge(1);
  clock_.Advance(60'000 * kMs - 1);
  registry_->CloseExpired();
  EXPECT_TRUE(Found(*session));
  EXPECT_FALSE(sink_->detached());
  clock_.Advance(1);
  EXPECT_EQ(registry_->CloseExpired(), INT64_MAX);
  EXPECT_FALSE(Found(*session));
  EXPECT_TRUE(absl::IsAborted(*sink_->detached()));
  EXPECT_EQ(metrics_.count(Metric::kSessions), 1);
}

TEST_F(RegistryTest, ClientsChooseLeasesWithinBounds) {
  env_.limits.max_lease_ms = 90'000;
  const std::pair<int64_t, int64_t> kCases[] = {
      {0, 60'000}, {1, 1000}, {70'000, 70'000}, {UINT32_MAX, 90'000}};
  for (const auto& [wanted, given] : kCases) {
    EXPECT_EQ(registry_->Describe(*Open(true, wanted)).lease_ms, given) << wanted;
  }
}

TEST_F(RegistryTest, OrphansLiveForTheGracePeriod) {
  const auto session = Open(true), kept = Open(true);
  for (const auto& orphan : {session, kept}) registry_->Leave(orphan, *sink_, /*keep=*/true);
  EXPECT_EQ(registry_->CloseExpired(), clock_.Ns() + 30'000 * kMs);
  clock_.Advance(29'999 * kMs);
  ASSERT_TRUE(registry_->KeepAlive(kept->terms().token, registry_->epoch(), *tenant_).ok());
  clock_.Advance(1 * kMs);
  EXPECT_EQ(registry_->CloseExpired(), clock_.Ns() + 59'999 * kMs) << "a lease, from then on";
  EXPECT_FALSE(Found(*session));
  EXPECT_TRUE(Found(*kept));
  EXPECT_FALSE(sink_->detached()) << "who has left is not told";
}

TEST_F(RegistryTest, TheTimerClosesWhatIsOver) {
  env_.clock = Clock::Steady();
  env_.limits.grace_ms = 1;
  registry_->StartTimer();
  const auto session = Open(true);
  registry_->Leave(session, *sink_, /*keep=*/true);
  sink_->Await([&] { return metrics_.count(Metric::kSessions) == 0; });
  EXPECT_FALSE(Found(*session));
}

TEST_F(RegistryTest, SessionsPayForTheMemoryThatTheyTake) {
  quotas_[Quota::kHostMemory] = 100'000;
  tenant_ = MakeTenant("bob");
  auto first = Open(false), second = Open(false);
  const auto third = registry_->Create(tenant_, false, 0, sink_);
  EXPECT_TRUE(absl::IsResourceExhausted(third.status())) << third.status();
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("host_memory of tenant bob"));
  for (auto* session : {&first, &second}) {
    registry_->Close(*session, absl::OkStatus());
    session->reset();
  }
  EXPECT_EQ(tenant_->accounts[Quota::kHostMemory].used(), 0);
}

}  // namespace
}  // namespace telegrad
