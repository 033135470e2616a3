// The limits of what all sessions of a tenant may have under way together, and the metrics of
// it.
#include <list>
#include <map>

#include "server/session/session_registry.h"
#include "server/tenant/tenant_metrics.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

// Sessions of one tenant whose runs wait at the gate.
class TenantLimits : public SessionTest {
 protected:
  ~TenantLimits() override {
    for (const auto& one : others_) one.session->Close();
  }
  struct Other {
    std::shared_ptr<Sink> sink = std::make_shared<Sink>();
    std::shared_ptr<Session> session = nullptr;
    uint64_t last_id = 0;
    template <typename Op>
    uint64_t Submit(Op op) {
      EXPECT_TRUE(
          session->Submit(*sink, {.id = ++last_id, .action = MakeAction(std::move(op))}).ok());
      return last_id;
    }
    absl::Status Sync() { return sink->Take(Submit(SyncOp{})).status; }
  };
  Other& Another() {
    Other& other = others_.emplace_back();
    other.session = std::make_shared<Session>(env_, tenant_, SessionTerms{}, other.sink);
    return other;
  }
  // Runs that wait: what follows them in this session waits, too, if it writes what they use.
  void RunAtTheGate() {
    Put(1);
    Alloc(1, 4);
    Alloc(2, 4);
    EXPECT_TRUE(Sync().ok());
    engine_.gate.Close();
    Run(1, 2);
  }
  int64_t Used(Quota quota) { return tenant_->accounts[quota].used(); }

  std::list<Other> others_;
};

TEST_F(TenantLimits, OperationsUnderWayAreBoundedTogether) {
  quotas_[Quota::kOperations] = 3;
  RunAtTheGate();
  EXPECT_EQ(Used(Quota::kOperations), 1);
  Write(2, "wait");
  EXPECT_FALSE(session().Congested());
  Other& second = Another();
  EXPECT_FALSE(second.session->Congested());
  second.Submit(AllocOp{1, 4, ""});
  second.Submit(AllocOp{2, 4, ""});
  EXPECT_EQ(Used(Quota::kOperations), 2) << "what has no answer has ended";
  second.Submit(RunOp{std::string(hash_.view()), {1, 2}});
  EXPECT_EQ(Used(Quota::kOperations), 3);
  EXPECT_TRUE(session().Congested());
  EXPECT_TRUE(second.session->Congested());
  EXPECT_FALSE(Another().session->Congested()) << "one with nothing under way may go on";
  const auto elsewhere = std::make_shared<Session>(env_, MakeTenant("other"), SessionTerms{},
                                                   std::make_shared<Sink>());
  EXPECT_FALSE(elsewhere->Congested());
  elsewhere->Close();
  engine_.gate.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_TRUE(second.Sync().ok());
  EXPECT_FALSE(session().Congested());
  EXPECT_EQ(Used(Quota::kOperations), 0);
}

TEST_F(TenantLimits, StagedBytesAreBoundedTogether) {
  quotas_[Quota::kHostStaging] = 10;
  RunAtTheGate();
  Write(2, "1234");
  Write(2, "5678");
  EXPECT_EQ(Used(Quota::kHostStaging), 8);
  EXPECT_FALSE(session().Congested());
  Other& second = Another();
  second.Submit(AllocOp{1, 4, ""});
  second.Submit(AllocOp{2, 4, ""});
  second.Submit(RunOp{std::string(hash_.view()), {1, 2}});
  EXPECT_FALSE(second.session->Congested());
  second.Submit(WriteOp{2, 0, std::make_unique<StringPayload>("9abc")});
  EXPECT_EQ(Used(Quota::kHostStaging), 12) << "what is received is there";
  EXPECT_TRUE(session().Congested());
  EXPECT_TRUE(second.session->Congested());
  EXPECT_FALSE(Another().session->Congested());
  engine_.gate.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_TRUE(second.Sync().ok());
  EXPECT_EQ(Used(Quota::kHostStaging), 0);
}

TEST_F(TenantLimits, ClosingGivesEverythingBackAtOnce) {
  RunAtTheGate();
  for (int i = 0; i < 5; ++i) Write(2, "wait");
  Read(1, 4);
  EXPECT_EQ(Used(Quota::kOperations), 7);
  EXPECT_EQ(Used(Quota::kHostStaging), 20);
  session_->Close();
  EXPECT_EQ(Used(Quota::kOperations), 0);
  EXPECT_EQ(Used(Quota::kHostStaging), 0);
  engine_.gate.Open();
  const std::weak_ptr<Session> session = std::exchange(session_, nullptr);
  sink_->Await([&] { return session.expired(); });
  sink_->Await([&] { return Used(Quota::kDeviceMemory) == 0; });
  EXPECT_EQ(Used(Quota::kOperations), 0) << "and not twice";
  sink_->Await([&] { return engine_.released_own == 1; });  // with the last session
}

TEST_F(TenantLimits, SessionsAreCounted) {
  quotas_[Quota::kSessions] = 2;
  const auto alice = MakeTenant("alice"), bob = MakeTenant("bob");
  SessionRegistry registry(env_);
  const auto open = [&](const std::shared_ptr<Tenant>& tenant) {
    return registry.Create(tenant, /*resumable=*/true, 0, sink_);
  };
  const auto first = open(alice), second = open(alice);
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status third = open(alice).status();
  EXPECT_TRUE(absl::IsResourceExhausted(third));
  EXPECT_EQ(third.message(),
            "sessions of tenant alice is limited to 2: 2 in use, 1 more asked for; ask for more");
  EXPECT_TRUE(open(bob).ok());
  registry.Close(*first, absl::OkStatus());
  EXPECT_TRUE(open(alice).ok()) << "although somebody still refers to the first";
  EXPECT_EQ(alice->accounts[Quota::kSessions].used(), 2);
  EXPECT_EQ(alice->accounts[Quota::kSessions].refused(), 1);
}

TEST_F(TenantLimits, MetricsAreByTenant) {
  TenantDirectory directory(
      {}, 8, [this](const Accounts&) { return std::shared_ptr<Engine>(&engine_, [](Engine*) {}); },
      &metrics_);
  const auto idle = *directory.Find("idle");
  tenant_ = *directory.Find("busy");
  session_ = std::make_shared<Session>(env_, tenant_, SessionTerms{}, sink_);
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(2, "1234");
  EXPECT_TRUE(StatusOf(Run(1, 2)).ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "1234");
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Read(7, 1))));

  std::map<std::string, double> busy, quiet;
  for (const LabelledMetric& metric : MetricsByTenant(directory)) {
    for (const auto& sample : metric.samples) {
      ASSERT_EQ(sample.labels[0].first, "tenant");
      if (metric.kind == MetricInfo::kHistogram) {  // of runs
        EXPECT_EQ(sample.histogram.total(), sample.labels[0].second == "busy" ? 1 : 0);
        continue;
      }
      std::string name = metric.name;
      if (sample.labels.size() > 1) StrAppend(&name, " ", sample.labels[1].second);
      (sample.labels[0].second == "busy" ? busy : quiet)[name] = sample.value;
    }
  }
  EXPECT_EQ(busy["telegrad_tenant_operations_total"], 7);
  EXPECT_EQ(busy["telegrad_tenant_operation_errors_total"], 1);
  EXPECT_EQ(busy["telegrad_tenant_runs_total"], 1);
  EXPECT_EQ(busy["telegrad_tenant_written_bytes_total"], 4);
  EXPECT_EQ(busy["telegrad_tenant_read_bytes_total"], 4);
  EXPECT_EQ(busy["telegrad_tenant_used device_memory"], 128);
  EXPECT_EQ(busy["telegrad_tenant_used graphs"], 1);
  EXPECT_EQ(busy["telegrad_tenant_limit sessions"], 256);
  EXPECT_EQ(quiet.size(), busy.size());
  for (const auto& [name, value] : quiet) {
    if (name.starts_with("telegrad_tenant_limit")) continue;
    EXPECT_EQ(value, 0) << name;
  }

  std::map<std::string, double> own;
  for (const auto& [name, value] : MetricsOf(*tenant_)) own[name] = value;
  EXPECT_EQ(own["telegrad_runs_total"], 1);
  EXPECT_EQ(own["telegrad_tenant_used{quota=\"device_memory\"}"], 128);
  EXPECT_EQ(own.size(), busy.size());
}

}  // namespace
}  // namespace telegrad
