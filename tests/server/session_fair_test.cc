// Sessions of two tenants on one device: failures, waiting runs and cancelled runs of one do not
// affect the other, and the use of device, compiler and network is limited for each.
#include "tests/fakes/manual_clock.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

class SessionFairTest : public SessionTest {
 protected:
  // A session of another tenant, with the graph and two buffers.
  struct Other {
    Other(SessionFairTest* test, std::string name)
        : tenant(test->MakeTenant(std::move(name))),
          session(std::make_shared<Session>(test->env_, tenant, SessionTerms{.id = 2}, sink)) {}
    ~Other() { session->Close(); }
    template <typename Op>
    uint64_t Submit(Op op) {
      EXPECT_TRUE(session->Submit(*sink, {.id = ++last, .action = MakeAction(std::move(op))}).ok());
      return last;
    }
    absl::Status StatusOf(uint64_t id) { return sink->Take(id).status; }

    std::shared_ptr<Sink> sink = std::make_shared<Sink>();
    std::shared_ptr<Tenant> tenant;
    std::shared_ptr<Session> session;
    uint64_t last = 0;
  };
  std::unique_ptr<Other> NewOther(std::string name = "other") {
    auto other = std::make_unique<Other>(this, std::move(name));
    const FrozenGraph graph = CopyGraph(1);
    EXPECT_TRUE(other->StatusOf(other->Submit(PutOf(graph, /*compile=*/false))).ok());
    for (uint64_t handle : {1, 2}) other->Submit(AllocOp{handle, 4, ""});
    return other;
  }
  RunOp Copy(uint64_t to, uint64_t from) {
    return RunOp{std::string(hash_.view()), {to, from}, /*quiet=*/false};
  }
};

// A device's timeline remembers so many failures, and then takes what lies between two for one.
TEST_F(SessionFairTest, FailuresOfOthersAreNotMine) {
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  Write(2, "good");
  ASSERT_TRUE(StatusOf(Run(1, 2)).ok());
  const auto other = NewOther();
  for (int i = 0; i < 6000; ++i) {
    engine_.gate.Close();
    engine_.gate.Open(absl::InternalError(std::to_string(i)));
    ASSERT_FALSE(other->StatusOf(other->Submit(Copy(1, 2))).ok());
    other->Submit(WriteOp{1, 0, std::make_unique<StringPayload>("heal")});
    engine_.gate.Close();
    engine_.gate.Open();
    ASSERT_TRUE(other->StatusOf(other->Submit(Copy(1, 2))).ok());
  }
  EXPECT_EQ(Bytes(Read(1, 4)), "good");
}

TEST_F(SessionFairTest, ARunThatWaitsHoldsUpNoOther) {
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  const auto other = NewOther();
  ASSERT_TRUE(other->StatusOf(other->Submit(Copy(1, 2))).ok());
  engine_.gate.Close();
  const uint64_t waits = Run(1, 2);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 2; });
  const fakes::Gate mine = engine_.gate;
  engine_.gate = fakes::Gate();
  EXPECT_TRUE(other->StatusOf(other->Submit(Copy(1, 2))).ok());
  fakes::Gate(mine).Open();
  EXPECT_TRUE(StatusOf(waits).ok());
}

TEST_F(SessionFairTest, DeviceTimeIsNotThatOfWaiting) {
  fakes::ManualClock clock;
  std::vector<std::unique_ptr<Device>> devices;
  CpuOptions options;
  options.threads = 1;
  options.memory_limit = 256 << 20;
  devices.push_back(*OpenCpu(options));
  const auto pool = *DevicePool::Create(std::move(devices), {}, &clock);
  env_.devices = pool.get();
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  engine_.gate.Close();
  const uint64_t run = Run(1, 2);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 1; });
  clock.Advance(25'000'000'000);
  engine_.gate.Open();
  const Answer answer = sink_->Take(run);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(As<RunResult>(answer).device_ns, 0u);
  session_->Close();
  pool->queue(*pool->devices()[0], QueueKind::kCompute)->Drained().Wait().IgnoreError();
  session_ = nullptr;
}

TEST_F(SessionFairTest, DeviceTimeIsLimited) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  quotas_[Quota::kDeviceRate] = 1;
  quotas_[Quota::kDeviceBurst] = 10;
  engine_.cost.seconds = 0.02;
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  engine_.gate.Close();
  const uint64_t first = Run(1, 2), second = Run(1, 2);
  sink_->Await([&] { return tenant_->accounts[Quota::kDeviceRate].refused() == 1; });
  engine_.gate.Open();
  EXPECT_TRUE(StatusOf(first).ok()) << "it is longer than the burst, which nobody had used";
  const absl::Status refused = StatusOf(second);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "device_rate of tenant test is limited to 1 ms in each second, device_burst to 10 ms: "
            "10 ms more have been used; try again in 10001 ms, or ask for more");
  EXPECT_EQ(RetryAfterMs(refused), 10'001);
  EXPECT_EQ(tenant_->accounts[Quota::kDeviceRate].refused(), 1);
  // The first took next to nothing, in fact.
  EXPECT_TRUE(StatusOf(Run(1, 2)).ok());
}

TEST_F(SessionFairTest, CompileTimeIsLimited) {
  quotas_[Quota::kCompileRate] = 0;
  quotas_[Quota::kCompileBurst] = 0;
  const absl::Status refused = StatusOf(Submit(PutOf(CopyGraph(1), /*compile=*/false)));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(engine_.compiled, 0);
}

// Frees are not limited, so that memory can be given back at any rate.
TEST_F(SessionFairTest, RequestsAreLimited) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  for (uint64_t handle : {1, 2, 3}) Alloc(handle, 4);
  ASSERT_TRUE(Sync().ok());
  quotas_[Quota::kRequestRate] = 2;
  quotas_[Quota::kRequestBurst] = 3;
  tenant_->Limit(quotas_, "ask for more", clock.Ns());
  // The three so far count.
  const absl::Status refused = StatusOf(Write(1, "abcd"));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(refused.message(),
            "request_rate of tenant test is limited to 2 requests in each second, request_burst to "
            "3 requests: 0 requests more have been used; try again in 1 ms, or ask for more");
  EXPECT_EQ(RetryAfterMs(refused), 1);
  EXPECT_EQ(tenant_->accounts[Quota::kRequestRate].refused(), 1);
  EXPECT_TRUE(Sync().ok());
  Submit(FreeOp{{3}});
  EXPECT_TRUE(Sync().ok());
  clock.Advance(1'500'000'000);
  Write(1, "abcd");
  EXPECT_EQ(Bytes(Read(1, 4)), "abcd");
  EXPECT_EQ(Bytes(Read(1, 4)), "abcd");
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(Read(1, 4))));
}

// By what clients write and read, however it is sent; the last one admitted may be longer than what
// is left.
TEST_F(SessionFairTest, TransferredBytesAreLimited) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  quotas_[Quota::kTransferRate] = 4;
  quotas_[Quota::kTransferBurst] = 6;
  tenant_->Limit(quotas_, "ask for more", clock.Ns());
  Write(1, "abcd");
  EXPECT_EQ(Bytes(Read(1, 4)), "abcd");
  const absl::Status refused = StatusOf(Read(1, 4));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(
      refused.message(),
      "transfer_rate of tenant test is limited to 4 bytes in each second, transfer_burst to 6 "
      "bytes: 2 bytes more have been used; try again in 501 ms, or ask for more");
  EXPECT_EQ(RetryAfterMs(refused), 501);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(Write(2, "abcd"))));
  EXPECT_EQ(tenant_->accounts[Quota::kTransferRate].refused(), 2);
  clock.Advance(501'000'000);
  Write(2, "efgh");
  EXPECT_EQ(tenant_->accounts[Quota::kTransferRate].refused(), 2);
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(tenant_->accounts[Quota::kTransferRate].refused(), 2);
}

// What is taken for a run that never begins is given back.
TEST_F(SessionFairTest, ACancelledRunCostsNoDeviceTime) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  quotas_[Quota::kDeviceRate] = 1;
  quotas_[Quota::kDeviceBurst] = 10;
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  engine_.cost.seconds = 0.02;
  engine_.gate.Close();
  const uint64_t run = Run(1, 2);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 1; });
  EXPECT_EQ(tenant_->device_time->overdrawn(clock.Ns()), 10);
  session_->Cancel(*sink_, ++last_id_, run, run);
  engine_.gate.Open();
  EXPECT_TRUE(absl::IsCancelled(StatusOf(run)));
  EXPECT_EQ(tenant_->device_time->overdrawn(clock.Ns()), -10);
}

// A run that waits for memory has taken device time; its session ends before it begins.
TEST_F(SessionFairTest, AClosedSessionsRunsCostNoDeviceTime) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  quotas_[Quota::kDeviceRate] = 1;
  quotas_[Quota::kDeviceBurst] = 100;
  engine_.cost.seconds = 0.02;
  int tries = 0;
  engine_.on_run = [&]() -> absl::Status {
    return ++tries > 1 ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
  };
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  engine_.gate.Close();
  Run(1, 2);
  Run(1, 2);
  sink_->Await([&] { return tenant_->device_time->overdrawn(clock.Ns()) == -60; });
  session_->Close();
  EXPECT_EQ(tenant_->device_time->overdrawn(clock.Ns()), -80) << "the second, which waits";
  engine_.gate.Open();
  pool_->queue(*device_, QueueKind::kCompute)->Drained().Wait().IgnoreError();
  session_ = nullptr;
  EXPECT_EQ(tenant_->device_time->overdrawn(clock.Ns()), -100);
}

}  // namespace
}  // namespace telegrad
